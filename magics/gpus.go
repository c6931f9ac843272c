package magics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// gpus shows the GPUs and who uses them: the cluster's, or this machine's where
// there is no cluster.
func (inv *invocation) gpus(ctx context.Context) (Value, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if inv.Has("spark-discovery") {
		return nil, inv.sparkDiscovery(ctx)
	}
	r, err := inv.findGPUReply(ctx)
	if err != nil {
		return nil, err
	}
	if inv.Has("json") {
		return nil, printProto(inv.out, r)
	}
	display(inv.out, gpusView(r))
	return nil, nil
}

func (inv *invocation) findGPUReply(ctx context.Context) (*clusterpb.GPUsReply, error) {
	m, err := inv.session.pick(ctx, inv.Command)
	if err == nil {
		r, err := m.client.GPUs(ctx, &clusterpb.GPUsRequest{})
		return r, answered(err)
	}
	var none *ClusterError
	if !errors.As(err, &none) || inv.Has("cluster") || inv.session.opt.Inventory == nil {
		return nil, err
	}
	r := &clusterpb.GPUsReply{}
	gpus, err := inv.session.opt.Inventory(ctx)
	if err != nil {
		r.Errors = []string{err.Error()}
	}
	r.Gpus = gpus
	return r, nil
}

// sparkDiscovery answers as spark.worker.resource.gpu.discoveryScript is to:
// {"name": "gpu", "addresses": ["0", "1"]}.
func (inv *invocation) sparkDiscovery(ctx context.Context) error {
	addresses := []string{}
	if inv.session.opt.Inventory != nil {
		gpus, err := inv.session.opt.Inventory(ctx)
		if err != nil {
			inv.out.Stderr(err.Error() + "\n") // none is an answer too
		}
		for _, g := range gpus {
			addresses = append(addresses, strconv.Itoa(int(g.GetIndex())))
		}
	}
	text, err := json.Marshal(map[string]any{"name": "gpu", "addresses": addresses})
	if err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	inv.out.Stdout(string(text) + "\n")
	return nil
}

func gpusView(r *clusterpb.GPUsReply) bundle {
	t := table{head: []string{"host", "gpu", "name", "memory", "used", "busy", "held by", "processes"}, right: []int{1, 3, 4, 5}}
	for _, g := range r.GetGpus() {
		processes := ""
		for i, p := range g.GetProcesses() {
			if i > 0 {
				processes += "; "
			}
			processes += fmt.Sprintf("%d %s %s", p.GetPid(), p.GetUser(), shorten(p.GetCommand(), 40))
		}
		t.rows = append(t.rows, plain(g.GetHost(), strconv.Itoa(int(g.GetIndex())), g.GetName(), bytesText(g.GetMemoryBytes()), bytesText(g.GetUsedBytes()),
			fmt.Sprintf("%d %%", g.GetUtilization()), g.GetHolder(), processes))
	}
	b := bundle{text: "no GPUs\n", html: "<div>no GPUs</div>"}
	if len(t.rows) > 0 {
		b = t.drop().bundle()
	}
	for _, e := range r.GetErrors() {
		b.text += e + "\n"
		b.html += `<div style="opacity:.65">` + esc(e) + "</div>"
	}
	return b
}

package verbs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var gpusVerb = row{
	Verb: command.Verb{
		Name: "gpus", Summary: "the GPUs, and who holds them", Magic: true, Shell: true, Now: true,
		Options: []command.Option{jsonOption, {
			Name: "spark-discovery",
			Kind: command.KindFlag,
			Help: "print this machine's GPUs as Spark's discovery script does",
		}, clusterOption, nowOption}, Example: "gpus",
	},
	run: (*invocation).gpus,
}

// gpus shows the GPUs and their users: the cluster's, or this machine's if there is no cluster.
func (inv *invocation) gpus(ctx context.Context) (result.Value, error) {
	ctx, cancel := context.WithTimeout(ctx, session.AnswerTimeout)
	defer cancel()
	if inv.Has("spark-discovery") {
		return nil, inv.sparkDiscovery(ctx)
	}
	r, err := inv.findGPUReply(ctx)
	if err != nil {
		return nil, err
	}
	text, err := clusterpb.ToJSON(r, true)
	if err != nil {
		return nil, err
	}
	var found struct {
		GPUs json.RawMessage `json:"gpus"`
	}
	if err := json.Unmarshal(text, &found); err != nil {
		return nil, errtext.Fault("encode the GPUs as JSON: %w", err)
	}
	return inv.answer(text, found.GPUs, func() render.Bundle { return gpusView(r) })
}

func (inv *invocation) findGPUReply(ctx context.Context) (*clusterpb.GPUsReply, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err == nil {
		r, err := m.Client.GPUs(ctx, &clusterpb.GPUsRequest{})
		return r, m.Explain(err)
	}
	var none *result.ClusterError
	if !errors.As(err, &none) || inv.Has("cluster") || inv.session.Options.Inventory == nil {
		return nil, err
	}
	r := &clusterpb.GPUsReply{}
	gpus, err := inv.session.Options.Inventory(ctx)
	if err != nil {
		r.Errors = []string{err.Error()}
	}
	r.Gpus = gpus
	return r, nil
}

// sparkDiscovery prints the output of a spark.worker.resource.gpu.discoveryScript: {"name":
// "gpu", "addresses": ["0", "1"]}.
func (inv *invocation) sparkDiscovery(ctx context.Context) error {
	addresses := []string{}
	if inv.session.Options.Inventory != nil {
		gpus, err := inv.session.Options.Inventory(ctx)
		if err != nil {
			inv.out.Stderr(err.Error() + "\n") // no GPU is a valid answer
		}
		for _, g := range gpus {
			addresses = append(addresses, strconv.Itoa(int(g.GetIndex())))
		}
	}
	text, err := json.Marshal(map[string]any{"name": "gpu", "addresses": addresses})
	if err != nil {
		return errtext.Fault("encode the GPUs as JSON: %w", err)
	}
	inv.out.Stdout(string(text) + "\n")
	return nil
}

func gpusView(r *clusterpb.GPUsReply) render.Bundle {
	t := render.Table{
		Head: []string{"host", "gpu", "name", "memory", "used", "busy", "held by", "processes"}, Right: []int{1, 3, 4, 5},
	}
	for _, g := range r.GetGpus() {
		var processes []string
		for _, p := range g.GetProcesses() {
			processes = append(processes, fmt.Sprintf("%d %s %s", p.GetPid(), p.GetUser(), command.Shorten(p.GetCommand(), 40)))
		}
		t.Rows = append(t.Rows, render.Row(g.GetHost(), strconv.Itoa(int(g.GetIndex())), g.GetName(),
			render.BytesText(g.GetMemoryBytes()), render.BytesText(g.GetUsedBytes()), fmt.Sprintf("%d %%", g.GetUtilization()),
			g.GetHolder(), strings.Join(processes, "; ")))
	}
	b := render.Line("no GPUs")
	if len(t.Rows) > 0 {
		b = t.Drop().Bundle()
	}
	for _, e := range r.GetErrors() {
		b = b.Faint(e)
	}
	return b
}

// findGPUs lists this machine's GPUs for doctor.
func (inv *invocation) findGPUs(ctx context.Context) finding {
	f := finding{what: "GPUs", found: "none: tasks use CPUs"}
	if inv.session.Options.Inventory == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	gpus, err := inv.session.Options.Inventory(ctx)
	switch {
	case err != nil:
		if _, serr := os.Stat("/dev/nvidiactl"); serr == nil {
			f.found, f.remedy = "not listed: "+err.Error(), "repair the NVIDIA driver"
		}
	case len(gpus) > 0:
		var names []string
		for _, g := range gpus {
			names = append(names, g.GetName()+" "+render.BytesText(g.GetMemoryBytes()))
		}
		f.found = render.ShortList(names, 8)
	}
	return f
}

package magics

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// gpus shows the cluster's GPUs and who uses them.
func (s *Session) gpus(ctx context.Context, inv *invocation) (Value, error) {
	m, err := s.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := m.client.GPUs(ctx, &clusterpb.GPUsRequest{})
	if err != nil {
		return nil, answered(err)
	}
	if inv.Has("json") {
		return nil, printProto(inv.out, r)
	}
	display(inv.out, gpusView(r))
	return nil, nil
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
	b := bundle{text: "this cluster holds no GPUs\n", html: "<div>this cluster holds no GPUs</div>"}
	if len(t.rows) > 0 {
		b = t.drop().bundle()
	}
	for _, e := range r.GetErrors() {
		b.text += e + "\n"
		b.html += `<div style="opacity:.65">` + esc(e) + "</div>"
	}
	return b
}

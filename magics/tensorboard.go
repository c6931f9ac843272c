package magics

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// tensorBoardType is the display that the JupyterLab extension renders. It holds an
// opaque id only: the path, with its token, is asked for over the comm.
const tensorBoardType = "application/vnd.tfcluster.tensorboard.v1+json"

// tensorBoardTimeout bounds TensorBoard's start.
const tensorBoardTimeout = 90 * time.Second

// tensorboard shows TensorBoard in the cell, and native curves to front ends that
// cannot.
func (inv *invocation) tensorboard(ctx context.Context) (Value, error) {
	m, err := inv.session.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	req := &clusterpb.TensorBoardRequest{Run: int32(inv.Count("run", 0))}
	if d := inv.Text("logdir"); d != "" {
		if req.Logdir, err = inv.results(inv.workingDir(ctx), d); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tensorBoardTimeout)
	defer cancel()
	r, err := m.client.TensorBoard(ctx, req)
	if err != nil {
		return nil, answered(err)
	}
	runs, err := m.history(ctx, req.GetRun() > 0)
	if err != nil {
		return nil, err
	}
	fallback := tensorBoardFallback(m.name, r, pickRun(runs, req.GetRun()))
	data := fallback.mime()
	if r.GetError() == "" && r.GetId() != "" {
		inv.session.knowBoard(r.GetId(), m.name, req)
		data[tensorBoardType] = map[string]any{"id": r.GetId()}
	}
	inv.out.Display(rand.Text(), data, nil)
	return nil, nil
}

func pickRun(runs []*clusterpb.RunStatus, id int32) *clusterpb.RunStatus {
	for _, run := range slices.Backward(runs) {
		if id == 0 || run.GetId() == id {
			return run
		}
	}
	return nil
}

func tensorBoardFallback(cluster string, r *clusterpb.TensorBoardReply, run *clusterpb.RunStatus) bundle {
	title := fmt.Sprintf("TensorBoard of cluster %s, log directory %s", cluster, r.GetLogdir())
	b := bundle{text: title + "\n", html: "<div><b>" + esc(title) + "</b></div>"}
	if e := r.GetError(); e != "" {
		b.text += e + "\n"
		b.html += `<div style="` + toneBusy.style() + `">` + esc(e) + "</div>"
	}
	if run == nil {
		b.text += "no run has reported metrics yet\n"
		b.html += "<div>no run has reported metrics yet</div>"
		return b
	}
	b.text += runTitle(run) + "\n"
	b.html += "<div>" + esc(runTitle(run)) + "</div>" + curves(run.GetSeries(), 12)
	for _, series := range sortSeries(run.GetSeries()) {
		if line := sparkline(series.GetValues(), 60); line != "" {
			last := series.GetValues()[len(series.GetValues())-1]
			b.text += fmt.Sprintf("%-14s %s %s\n", series.GetName(), line, number(last))
		}
	}
	return b
}

package verbs

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// tensorboardVerb is the row of tensorboard.
func tensorboardVerb() row {
	return row{
		Verb: command.Verb{
			Name: "tensorboard", Summary: "TensorBoard in the cell", Magic: true, Now: true,
			Options: []command.Option{{Name: "logdir", Kind: command.KindPath, Help: "another log directory"}, runOption(), clusterOption(), nowOption()}, Example: "tensorboard",
		},
		run: (*invocation).tensorboard,
	}
}

// tensorBoardType is the display that the JupyterLab extension renders. It holds an
// opaque id only: the path, with its token, is asked for over the comm.
const tensorBoardType = "application/vnd.tfcluster.tensorboard.v1+json"

// tensorBoardTimeout bounds TensorBoard's start.
const tensorBoardTimeout = 90 * time.Second

// tensorboard shows TensorBoard in the cell, and native curves to front ends that
// cannot.
func (inv *invocation) tensorboard(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	m.Hold()
	req := &clusterpb.TensorBoardRequest{Run: int32(inv.Count("run", 0))}
	if d := inv.Text("logdir"); d != "" {
		if req.Logdir, err = inv.results(inv.workingDir(ctx), d); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, tensorBoardTimeout)
	defer cancel()
	r, err := m.Client.TensorBoard(ctx, req)
	if err != nil {
		return nil, m.Explain(err)
	}
	runs, err := m.History(ctx, req.GetRun() > 0)
	if err != nil {
		return nil, err
	}
	fallback := tensorBoardFallback(m.Name, r, pickRun(runs, req.GetRun()))
	data := fallback.MIME()
	if r.GetError() == "" && r.GetId() != "" {
		inv.session.KnowBoard(r.GetId(), m.Name, req)
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

func tensorBoardFallback(cluster string, r *clusterpb.TensorBoardReply, run *clusterpb.RunStatus) render.Bundle {
	title := fmt.Sprintf("TensorBoard of cluster %s, log directory %s", cluster, r.GetLogdir())
	b := render.Bundle{Text: title + "\n", HTML: "<div><b>" + render.Escape(title) + "</b></div>"}
	if e := r.GetError(); e != "" {
		b.Text += e + "\n"
		b.HTML += `<div style="` + render.ToneBusy.Style() + `">` + render.Escape(e) + "</div>"
	}
	if run == nil {
		b.Text += "no run has reported metrics yet\n"
		b.HTML += "<div>no run has reported metrics yet</div>"
		return b
	}
	b.Text += render.RunTitle(run) + "\n"
	b.HTML += "<div>" + render.Escape(render.RunTitle(run)) + "</div>" + render.Curves(run.GetSeries(), 12)
	for _, series := range render.SortSeries(run.GetSeries()) {
		if line := render.Sparkline(series.GetValues(), 60); line != "" {
			last := series.GetValues()[len(series.GetValues())-1]
			b.Text += fmt.Sprintf("%-14s %s %s\n", series.GetName(), line, render.Number(last))
		}
	}
	return b
}

package verbs

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var tensorboardVerb = row{
	Verb: command.Verb{
		Name: "tensorboard", Summary: "TensorBoard in the cell", Magic: true, Now: true,
		Options: []command.Option{
			{Name: "logdir", Kind: command.KindPath, Help: "another log directory"}, runOption, clusterOption, nowOption,
		}, Example: "tensorboard",
	},
	run: (*invocation).tensorboard,
}

// tensorBoardType is the MIME type that the JupyterLab extension renders. It has an opaque ID
// only; the extension requests the path, with its token, over the comm.
const tensorBoardType = "application/vnd.tfcluster.tensorboard.v1+json"

// tensorBoardTimeout bounds starting TensorBoard. The driver's limit is shorter, so that its answer arrives.
const tensorBoardTimeout = 100 * time.Second

// tensorboard shows TensorBoard in the cell, and curves in front ends that cannot.
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
	fallback := tensorBoardFallback(m.Name, r, session.PickRun(runs, req.GetRun()))
	data, display := fallback.MIME(), rand.Text()
	if r.GetError() == "" && r.GetId() != "" {
		inv.session.AddBoard(r.GetId(), session.Board{Cluster: m.Name, Request: req, Display: display})
		shown := map[string]any{"id": r.GetId()}
		if curves := render.Curves(session.PickRun(runs, req.GetRun()).GetSeries(), session.MostCurves); len(curves) > 0 {
			shown["curves"] = curves // for a front end that cannot reach TensorBoard
		}
		data[tensorBoardType] = shown
	}
	inv.out.Display(display, data, nil)
	return nil, nil
}

// release releases a cluster. Cells with its TensorBoard then show curves.
func (inv *invocation) release(ctx context.Context, m *session.Handle, req *clusterpb.ShutdownRequest) error {
	boards := inv.session.Boards(m.Name)
	var runs []*clusterpb.RunStatus
	if len(boards) > 0 {
		runs, _ = m.History(ctx, true) // after an error the cells only say that the cluster was released
	}
	if err := inv.session.Release(ctx, inv.out, m, req); err != nil {
		return err
	}
	for _, b := range boards {
		view := boardView(fmt.Sprintf("TensorBoard of cluster %s: the cluster was released", m.Name), "",
			session.PickRun(runs, b.Request.GetRun()))
		inv.out.Update(b.Display, view.MIME(), nil)
	}
	return nil
}

func tensorBoardFallback(cluster string, r *clusterpb.TensorBoardReply, run *clusterpb.RunStatus) render.Bundle {
	return boardView(fmt.Sprintf("TensorBoard of cluster %s, log directory %s", cluster, r.GetLogdir()),
		errtext.WithRemedy(r.GetError()), run)
}

// boardView shows the curves of a run instead of TensorBoard.
func boardView(title, problem string, run *clusterpb.RunStatus) render.Bundle {
	about := "no run has reported metrics yet"
	if run != nil {
		about = render.RunTitle(run)
	}
	b := render.Title(title)
	if problem != "" {
		b = b.Busy(problem)
	}
	b = b.Line(about).Curves(render.Curves(run.GetSeries(), session.MostCurves))
	for _, series := range render.SortSeries(run.GetSeries()) {
		if line := render.Sparkline(series.GetValues(), 60); line != "" {
			last := series.GetValues()[len(series.GetValues())-1]
			b = b.Plain(fmt.Sprintf("%-14s %s %s", series.GetName(), line, render.Number(last)))
		}
	}
	return b
}

// findTensorBoard checks for doctor that an interpreter has TensorBoard.
func findTensorBoard(ctx context.Context, interpreter string) finding {
	f := finding{
		what:   "TensorBoard",
		remedy: "make an environment with tensorboard and set TFCLUSTER_TENSORBOARD_PYTHON to its python",
	}
	if interpreter == "" {
		f.found = "no environment named"
		return f
	}
	interpreter = fullPath(interpreter)
	got, err := python.Versions(ctx, interpreter, "tensorboard")
	switch {
	case err != nil:
		f.found = err.Error()
	case got["tensorboard"] == "":
		f.found = "not installed for " + interpreter
		return f.install(interpreter, "tensorboard 'setuptools<81'")
	default:
		f.found, f.remedy = got["tensorboard"]+", "+interpreter, ""
	}
	return f
}

package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

var resetVerb = row{
	Verb: command.Verb{
		Name: "reset", Summary: "end what hangs, was lost or orphaned; free GPUs and ports; replace lost executors",
		Magic: true, Shell: true, Now: true, Options: []command.Option{
			{Name: "hard", Kind: command.KindFlag, Help: "SIGKILL without grace, new agents and a new warm Python"},
			clusterOption, nowOption,
		}, Example: "reset",
	},
	run: (*invocation).reset,
}

// resetTimeout bounds a reset: grace time, new executors and a warm Python.
const resetTimeout = 5 * time.Minute

// reset ends hanging and orphaned processes, replaces lost executors and waits until all are
// ready. If the cluster's driver has died it starts another first.
func (inv *invocation) reset(ctx context.Context) (result.Value, error) {
	begun := time.Now()
	m, err := inv.session.PickOrRecover(ctx, inv.Command, true)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	stream, err := m.Client.Reset(ctx, &clusterpb.ResetRequest{Hard: inv.Has("hard")})
	if err != nil {
		return nil, m.Explain(err)
	}
	v := render.NewView(inv.out)
	for {
		u, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, m.CutShort()
		case err != nil:
			return nil, m.Explain(err)
		case u.GetFailure() != nil:
			return nil, &result.RunFailed{Failure: u.GetFailure()}
		}
		v.Show(u.GetDone(), func() render.Bundle { return resetView(m.Name, u, time.Since(begun)) })
		if u.GetDone() {
			return nil, nil
		}
	}
}

func resetView(name string, u *clusterpb.ResetUpdate, took time.Duration) render.Bundle {
	if u.GetDone() {
		return render.Title(fmt.Sprintf("cluster %s: reset in %.1f s, %s ready", name, took.Seconds(),
			render.Plural(int64(len(u.GetExecutors())), "executor")))
	}
	title := fmt.Sprintf("cluster %s: resetting · %s", name, render.Clock(took.Seconds()))
	b := render.Title(title).Table(render.ExecutorRows(u.GetExecutors()))
	if u.GetText() != "" {
		b = b.Line(u.GetText())
	}
	return b
}

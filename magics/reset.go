package magics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// resetTimeout bounds a reset: grace, new executors and a warm Python.
const resetTimeout = 5 * time.Minute

// reset ends what hangs, was lost or orphaned, and waits until every executor is
// back. A cluster whose driver died gets a new one first.
func (inv *invocation) reset(ctx context.Context) (Value, error) {
	begun := time.Now()
	m, err := inv.session.pickOrRecover(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, resetTimeout)
	defer cancel()
	stream, err := m.client.Reset(ctx, &clusterpb.ResetRequest{Hard: inv.Has("hard")})
	if err != nil {
		return nil, answered(err)
	}
	v := newView(inv.out)
	for {
		u, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil, &ClusterError{Text: "the driver ended the reset without a word"}
		case err != nil:
			return nil, answered(err)
		case u.GetFailure() != nil:
			return nil, &RunFailed{Failure: u.GetFailure()}
		}
		v.show(u.GetDone(), func() bundle { return resetView(m.name, u, time.Since(begun)) })
		if u.GetDone() {
			return nil, nil
		}
	}
}

func resetView(name string, u *clusterpb.ResetUpdate, took time.Duration) bundle {
	if u.GetDone() {
		line := fmt.Sprintf("cluster %s: reset in %.1f s, %s ready", name, took.Seconds(), plural(int64(len(u.GetExecutors())), "executor"))
		return bundle{text: line + "\n", html: "<div><b>" + esc(line) + "</b></div>"}
	}
	title := fmt.Sprintf("cluster %s: resetting · %s", name, clock(took.Seconds()))
	t := executorRows(u.GetExecutors()).bundle()
	b := bundle{text: title + "\n" + t.text, html: "<div><b>" + esc(title) + "</b></div>" + t.html}
	if u.GetText() != "" {
		b.text += u.GetText() + "\n"
		b.html += "<div>" + esc(u.GetText()) + "</div>"
	}
	return b
}

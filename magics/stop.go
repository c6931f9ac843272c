package magics

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// stop ends the active run and waits for its end; the executors stay. An interrupt
// kills the run.
func (s *Session) stop(ctx context.Context, inv *invocation) (Value, error) {
	m, err := s.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	if !active(st.GetRun()) {
		inv.out.Stdout("no run is active: there is nothing to stop\n")
		return nil, nil
	}
	run := st.GetRun().GetId()
	asked, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := m.client.Stop(asked, &clusterpb.StopRequest{Run: run, GraceMillis: stopGrace.Milliseconds()}); err != nil {
		return nil, answered(err)
	}
	ended, err := awaitEnd(ctx, m, run)
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(fmt.Sprintf("run %d %s after %s; the executors stay\n", run, ended.GetState(), clock(ended.GetSeconds())))
	return nil, nil
}

// active is whether a run's tasks may still be there.
func active(r *clusterpb.RunStatus) bool {
	switch r.GetState() {
	case "starting", "waiting", "running", "stopping", "restarting":
		return true
	}
	return false
}

// awaitEnd waits for a run's end, within its grace and some more.
func awaitEnd(ctx context.Context, m *member, run int32) (*clusterpb.RunStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*stopGrace)
	defer cancel()
	// burst 1 and one task: the lines are for the next wait, as few as can be are sent
	stream, err := m.client.Follow(ctx, &clusterpb.FollowRequest{Run: run, Show: "chief", Burst: 1})
	if err != nil {
		return nil, answered(err)
	}
	var last *clusterpb.RunStatus
	for {
		u, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return last, nil
		case err != nil:
			return nil, answered(err)
		}
		if u.GetStatus() != nil {
			last = u.GetStatus()
		}
		if u.GetFinal() {
			return last, nil
		}
	}
}

package verbs

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var stopVerb = row{
	Verb: command.Verb{
		Name: "stop", Summary: "end the run; the executors stay", Magic: true, Shell: true, Now: true,
		Options: []command.Option{clusterOption, nowOption}, Example: "stop",
		Long: "Programs that report steps (Keras fit, ctx.report) get SystemExit(143) at the same step on every task, " +
			"others where they are. They have 30 s to save.",
	},
	run: (*invocation).stop,
}

// stop ends the active run and waits for its end. The executors are kept unless the cluster was
// made for that run. An interrupt kills the run.
func (inv *invocation) stop(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	if !render.Active(st.GetRun()) && yetToBegin(st) {
		return nil, inv.session.Release(ctx, inv.out, m,
			&clusterpb.ShutdownRequest{Force: true, Reason: "stopped on request"})
	}
	if !render.Active(st.GetRun()) {
		inv.out.Stdout("no run is active: there is nothing to stop\n")
		return nil, nil
	}
	run := st.GetRun().GetId()
	if _, err := session.Ask(ctx, m, m.Client.Stop,
		&clusterpb.StopRequest{Run: run, GraceMillis: stopGrace.Milliseconds()}); err != nil {
		return nil, err
	}
	ended, err := awaitEnd(ctx, m, run)
	if err != nil {
		return nil, err
	}
	stay := "the executors stay"
	if st.GetBeginsItself() {
		stay = "its executors are released"
	}
	inv.out.Stdout(fmt.Sprintf("run %d %s after %s; %s\n", run, ended.GetState(), render.Clock(ended.GetSeconds()), stay))
	return nil, nil
}

// yetToBegin returns whether a cluster's own run is still to be started. Its directory may have
// runs of earlier clusters.
func yetToBegin(st *clusterpb.ClusterStatus) bool {
	if state := st.GetState(); state != "reserving" && state != "ready" || !st.GetRequest().GetOneRun() {
		return false
	}
	was := st.GetRun().GetAllocation()
	return st.GetRun() == nil || was != "" && was != st.GetAllocation()
}

// awaitEnd waits for a run's end, for its grace time and a margin.
func awaitEnd(ctx context.Context, m *session.Handle, run int32) (*clusterpb.RunStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*stopGrace)
	defer cancel()
	// burst 1 and one task: as few lines as possible, the next wait shows them
	stream, err := m.Client.Follow(ctx, &clusterpb.FollowRequest{Run: run, Show: "chief", Burst: 1})
	if err != nil {
		return nil, m.Explain(err)
	}
	var last *clusterpb.RunStatus
	for {
		u, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF) && last != nil:
			return last, nil
		case err != nil:
			return nil, m.Explain(err)
		}
		if u.GetStatus() != nil {
			last = u.GetStatus()
		}
		if u.GetFinal() {
			return last, nil
		}
	}
}

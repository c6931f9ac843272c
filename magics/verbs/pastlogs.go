package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

// pastTimeout bounds reading logs and results of an ended cluster.
const pastTimeout = 30 * time.Minute

// pastLogs shows the logs of an ended cluster: a run's lines, or, without a run, the engine's
// logs of its executors.
func (inv *invocation) pastLogs(ctx context.Context, p *state.ClusterRecord, req *clusterpb.LogsRequest) error {
	if !req.GetEngine() {
		runs, err := inv.pastRun(ctx, p, req)
		if err != nil || runs {
			return err
		}
	}
	if len(p.Applications) == 0 && p.LastRun > p.Earlier {
		return &result.ClusterError{Text: removedRuns(p)}
	}
	if len(p.Applications) == 0 {
		inv.out.Stdout(inv.session.PastLine(p) + "; it had no run, and its engine keeps no logs that could be read here\n")
		return nil
	}
	return inv.leaseLogs(ctx, p.Applications[len(p.Applications)-1].ID, p, req)
}

// pastResults opens the runs of an ended cluster, with a context for reading them; end closes both.
func (inv *invocation) pastResults(ctx context.Context,
	p *state.ClusterRecord,
) (r *results.Results, reading context.Context, end func(), err error) {
	r, err = inv.session.Results(p)
	if err != nil {
		return nil, nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, pastTimeout)
	ctx, stop := interruptible(ctx, inv.out)
	return r, ctx, func() { stop(); cancel(); r.Folder.Close() }, nil
}

// pastRun shows a run's lines; it returns false if there is no run.
func (inv *invocation) pastRun(ctx context.Context, p *state.ClusterRecord, req *clusterpb.LogsRequest) (bool, error) {
	r, ctx, end, err := inv.pastResults(ctx, p)
	if err != nil {
		return false, err
	}
	defer end()
	if req.GetRun() > 0 { // the user named this run: it may be another cluster's
		r.Of = nil
	}
	runs, err := r.Runs(ctx)
	if err != nil || len(runs) == 0 {
		return false, err
	}
	q, err := logstore.ParseQuery(req)
	if err != nil {
		return false, command.Usagef(inv.Verb, "%v", err)
	}
	if n := req.GetRun(); n == 0 {
		q.Run = runs[len(runs)-1].GetId()
	} else if !slices.ContainsFunc(runs, func(st *clusterpb.RunStatus) bool { return st.GetId() == n }) {
		return false, command.Usagef(inv.Verb, "cluster %s had no run %d; %s lists its runs", p.Name, n,
			inv.session.Say("history -c "+p.Name))
	}
	lines, gaps, err := r.Lines(ctx, q)
	if err != nil {
		return false, err
	}
	out := inv.printer()
	out.Shows(p.Name, q.Run)
	defer out.Close()
	out.Heading(fmt.Sprintf("%s; run %d", inv.session.PastLine(p), q.Run))
	still(lines)
	out.WithGaps(lines, gaps)
	if len(lines) == 0 {
		out.Put(false, noLines(req)+"\n")
	}
	return true, nil
}

// leaseLogs shows the engine's logs of an application; p is its cluster's record, nil if there
// is none.
func (inv *invocation) leaseLogs(ctx context.Context, lease string, p *state.ClusterRecord,
	req *clusterpb.LogsRequest,
) error {
	if err := onlyTasks(inv); err != nil {
		return err
	}
	engine, ok := inv.session.Options.Engines.OfApplication(lease)
	if !ok {
		return &result.ClusterError{
			Text:   lease + " is not an application of an engine that this tfcluster knows",
			Remedy: "give the identifier of a YARN application, application_…, or a cluster's name",
		}
	}
	r, err := inv.requestOf(ctx, engine, p)
	if err != nil {
		return err
	}
	var places []byte
	if p != nil {
		places = p.Places
	}
	selected, err := logstore.ParseQuery(req)
	if err != nil {
		return command.Usagef(inv.Verb, "%v", err)
	}
	q := cluster.LogQuery{Allocation: lease, Task: req.GetTask(), Last: int(req.GetLast()), Grep: selected.Grep}
	ctx, cancel := context.WithTimeout(ctx, pastTimeout)
	defer cancel()
	ctx, stop := interruptible(ctx, inv.out)
	defer stop()
	out := inv.printer()
	out.Shows(lease, 0)
	defer out.Close()
	written := 0
	err = engine.History.ReadLogs(ctx, r, places, q, func(heading string, lines []*clusterpb.Line) error {
		written += len(lines)
		out.Heading(heading)
		out.Lines(lines)
		out.Flush()
		return ctx.Err()
	})
	switch {
	case errors.Is(err, context.Canceled): // interrupted
		return nil
	case err != nil:
		return &result.ClusterError{Text: err.Error()}
	case written == 0:
		out.Put(false, noLines(req)+"\n")
	}
	return nil
}

// onlyTasks refuses options that engine logs do not support: their lines have no time and
// cannot be followed.
func onlyTasks(inv *invocation) error {
	for _, name := range []string{"follow", "since", "run"} {
		if inv.Has(name) {
			return command.Usagef(inv.Verb, "--%s works only for the logs of tasks; to choose lines from the container logs "+
				"that the engine keeps, use --task, --grep or --lines", name)
		}
	}
	return nil
}

package verbs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// mostSubmitted is the maximum size of a start that is submitted with the request of an engine:
// the ResourceManager's state store accepts less than a megabyte. A larger start is sent to the
// driver later.
const mostSubmitted = 256 << 10

// submit waits until the engine has accepted a cluster that starts its run itself, and shows
// how to follow that.
func (inv *invocation) submit(ctx context.Context, m *session.Handle,
	req *clusterpb.ReserveRequest,
) (result.Value, error) {
	progress := *inv
	progress.out = quiet{inv.out}
	take := func(_ *session.Handle, u *clusterpb.ReserveUpdate) (bool, error) {
		if f := u.GetFailure(); f != nil {
			inv.session.Forget(m.Name)
			return false, &result.RunFailed{Failure: f}
		}
		id := u.GetAllocation()
		if id == "" {
			return false, nil
		}
		inv.out.Stdout(m.Name + "\n")
		inv.out.Stderr(id + " is submitted; its run needs this machine no more\n" +
			inv.session.Say("logs -f -c "+m.Name) + " follows it, " + inv.session.Say("wait -c "+m.Name) +
			" ends as it does, " + inv.session.Say("stop -c "+m.Name) + " ends it\n")
		return true, nil
	}
	return nil, progress.followReservation(ctx, m, req, true, take)
}

// pastWait shows how the last run of an ended cluster ended. err is the error of looking for a
// live cluster.
func (inv *invocation) pastWait(ctx context.Context, p *state.ClusterRecord, err error) (result.Value, error) {
	r, ctx, end, rerr := inv.pastResults(ctx, p)
	if rerr != nil {
		return nil, rerr
	}
	defer end()
	runs, rerr := lastRuns(ctx, r, p)
	if rerr != nil {
		return nil, rerr
	}
	inv.out.Stdout(inv.session.PastLine(p) + "\n")
	if n := len(runs); n == 0 || !ranIn(p, runs[n-1]) {
		if p.LastRun > p.Earlier {
			return nil, &result.ClusterError{Text: removedRuns(p)}
		}
		if n := len(p.Applications); n > 0 {
			last, what := p.Applications[n-1], " had no run: "
			code := codeOfEnd(last.State)
			if code == exitKilled { // perhaps before its record was written
				what = " has no record of a run: "
			}
			err = &result.ClusterError{
				Code: code, Text: "cluster " + p.Name + what + last.ID + " " +
					last.State, Remedy: inv.session.Say("logs -c "+last.ID) + " shows what its containers wrote",
			}
		}
		return nil, err
	}
	f := &followed{
		session: inv.session, inv: inv, member: &session.Handle{Name: p.Name}, view: render.NewView(inv.out),
		printer: inv.followPrinter(), status: runs[len(runs)-1],
	}
	v, err := f.end()
	return v, inv.inShell(v, err)
}

// recordDelay bounds the time from the end of an application, which its engine tells at once, until the last record of
// its driver can be read.
const recordDelay = 3 * time.Second

// lastRuns returns the runs of an ended cluster's directory. It waits for the last record of a cluster of an engine's
// application that may have ended just now.
func lastRuns(ctx context.Context, r *results.Results, p *state.ClusterRecord) ([]*clusterpb.RunStatus, error) {
	for until := time.Now().Add(recordDelay); ; {
		runs, err := r.Runs(ctx)
		n := len(runs)
		late := len(p.Applications) > 0 && (p.Until.IsZero() || time.Since(p.Until) < recordDelay) &&
			(n == 0 || !ranIn(p, runs[n-1]) || results.Interrupted(runs[n-1]))
		if err != nil || !late || time.Now().After(until) {
			return runs, err
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				return runs, nil
			}
			return nil, &result.Interrupted{Text: "no longer waiting for the last record of cluster " + p.Name}
		case <-time.After(recordDelay / 20):
		}
	}
}

// exitKilled is the exit code where somebody ended the application, as of a process that SIGKILL ended.
const exitKilled = 137

// codeOfEnd returns the exit code for an application that ended without a run, by what its engine or its driver says of
// its end: as the attached command would have ended.
func codeOfEnd(state string) int {
	switch {
	case strings.HasPrefix(state, "killed"):
		return exitKilled
	case strings.Contains(state, "not reserved"):
		return 75
	}
	return 69
}

// removedRuns returns the message for a cluster whose runs' records were removed.
func removedRuns(p *state.ClusterRecord) string {
	return fmt.Sprintf("cluster %s had %s, of which no record is left in %s: it was removed, by hand or by history "+
		"--prune, and cannot be read any more", p.Name, render.Plural(int64(p.LastRun-p.Earlier), "run"), p.Dir)
}

// ranIn returns whether a run was of this cluster: its directory may have others. A run that
// its driver's death interrupted has no record of it.
func ranIn(p *state.ClusterRecord, st *clusterpb.RunStatus) bool {
	if st.GetAllocation() == "" || len(p.Applications) == 0 {
		return st.GetStartedUnix() == 0 || st.GetStartedUnix() >= p.Since.Unix()
	}
	return slices.ContainsFunc(p.Applications, func(l cluster.Application) bool { return l.ID == st.GetAllocation() })
}

package magics

import (
	"context"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// mostSubmitted bounds a start that travels with what its engine is asked for, which
// keeps it: the ResourceManager's store takes less than a megabyte. A larger one is given
// to the driver once that is there.
const mostSubmitted = 256 << 10

// submit waits until the engine has taken a cluster that begins its run by itself, and
// says how that is followed.
func (inv *invocation) submit(ctx context.Context, m *member, req *clusterpb.ReserveRequest) (Value, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(req.GetTimeoutMillis())*time.Millisecond+time.Minute)
	defer cancel()
	stream, err := m.client.Reserve(ctx, req)
	if err != nil {
		return nil, answered(err)
	}
	updates, stop := receive(stream.Recv)
	defer stop()
	defer cancel()
	progress := *inv
	progress.out = quiet{inv.out}
	for {
		select {
		case <-inv.out.Interrupts():
			return nil, progress.giveUp(m, true)
		case u := <-updates:
			if u.err != nil {
				return nil, inv.reserveBroke(m, true, u.err)
			}
			if f := u.msg.GetFailure(); f != nil {
				inv.session.forget(m.name)
				return nil, &RunFailed{Failure: f}
			}
			if id := u.msg.GetAllocation(); id != "" {
				inv.out.Stdout(m.name + "\n")
				inv.out.Stderr(id + " is submitted; its run needs this machine no more\n" +
					inv.session.say("logs -f -c "+m.name) + " follows it, " + inv.session.say("wait -c "+m.name) + " ends as it does, " + inv.session.say("stop -c "+m.name) + " ends it\n")
				return nil, nil
			}
		}
	}
}

// pastWait is what wait says of a cluster that is over: how its last run ended. err is
// why it is not there.
func (inv *invocation) pastWait(ctx context.Context, p *cluster.Past, err error) (Value, error) {
	r, rerr := inv.session.results(p)
	if rerr != nil {
		return nil, rerr
	}
	defer r.Folder.Close()
	ctx, stop := reading(ctx, inv.out)
	defer stop()
	runs, rerr := r.Runs(ctx)
	if rerr != nil {
		return nil, rerr
	}
	inv.out.Stdout(inv.session.pastLine(p) + "\n")
	if n := len(runs); n == 0 || !ranIn(p, runs[n-1]) {
		if n := len(p.Leases); n > 0 {
			err = &ClusterError{Text: "cluster " + p.Name + " had no run: " + p.Leases[n-1].ID + " " + p.Leases[n-1].State}
		}
		return nil, err
	}
	f := &followed{session: inv.session, inv: inv, member: &member{name: p.Name}, view: newView(inv.out), printer: newPrinter(inv.out, inv.session.say, 0), status: runs[len(runs)-1]}
	v, err := f.end()
	return v, released(err)
}

// ranIn is whether a run was of this cluster: its directory may hold others'. One that its
// driver's death cut off says nothing of itself.
func ranIn(p *cluster.Past, st *clusterpb.RunStatus) bool {
	if st.GetAllocation() == "" || len(p.Leases) == 0 {
		return st.GetStartedUnix() == 0 || st.GetStartedUnix() >= p.Since.Unix()
	}
	return slices.ContainsFunc(p.Leases, func(l cluster.Lease) bool { return l.ID == st.GetAllocation() })
}

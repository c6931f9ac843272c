package magics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// What a cell shows of a burst at each end, and of a line: the sizes are those of JSON.
const (
	burst      = 200 // lines
	burstBytes = 256 << 10
	lineBytes  = 4 << 10
)

// stopGrace is what a stopped task has to write a checkpoint.
const stopGrace = 30 * time.Second

// wait holds the cell until the run ends. It is train's work too, which feeds
// nothing yet.
func (inv *invocation) wait(ctx context.Context) (Value, error) {
	if len(inv.Words) > 0 {
		return nil, &NotYetError{notYetFeed}
	}
	m, err := inv.session.pick(ctx, inv.Command)
	var v Value
	if err == nil {
		if v, err = inv.waitLive(ctx, m); !isOver(err) {
			if inv.session.opt.Shell { // which starts nothing on executors that are held
				err = released(err)
			}
			return v, err
		}
	} else if !inv.Has("cluster") {
		return nil, err
	}
	if p := inv.session.past(inv.Command, err); p != nil && !p.Until.IsZero() { // it is over: what it left tells how its run ended
		return inv.pastWait(ctx, p, err)
	}
	return nil, err
}

// waitLive waits for a run of a cluster that is there.
func (inv *invocation) waitLive(ctx context.Context, m *member) (Value, error) {
	show := inv.Text("show")
	if show == "" {
		if sub := inv.session.submission(m.name); sub != nil {
			show = sub.show
		}
	}
	return inv.follow(ctx, m, &clusterpb.FollowRequest{Show: show}, newView(inv.out))
}

// follow shows a run in v until its end: run 0 is the active or last one.
func (inv *invocation) follow(ctx context.Context, m *member, req *clusterpb.FollowRequest, v *view) (Value, error) {
	if req.GetShow() == "" {
		req.Show = "all"
	}
	req.Burst, req.BurstBytes, req.LineBytes = burst, burstBytes, lineBytes
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := m.client.Follow(ctx, req)
	if err != nil {
		return nil, answered(err)
	}
	f := &followed{session: inv.session, inv: inv, member: m, view: v, printer: newPrinter(inv.out, inv.session.say, 0)}
	f.printer.shows(m.name, req.GetRun())
	updates, stop := receive(stream.Recv)
	defer stop()
	defer cancel()
	broken := &breaker{session: inv.session, member: m, out: inv.out, batch: inv.Verb.Name == "run"}
	for {
		select {
		case <-inv.out.Interrupts():
			if inv.session.opt.Shell && !broken.batch && f.needsNobody(ctx) {
				return nil, &Interrupted{Text: "no longer waiting; the run goes on, and " + inv.session.say("stop -c "+m.name) + " ends it"}
			}
			if err := broken.interrupt(f.status.GetId()); err != nil {
				return nil, err
			}
		case u := <-updates:
			if u.err != nil {
				return nil, f.broke(u.err)
			}
			f.update(u.msg)
			if u.msg.GetFinal() {
				v, err := f.end()
				return v, broken.reason(err)
			}
		}
	}
}

// followed is a run before the cell's eyes; owned by follow.
type followed struct {
	session *State
	inv     *invocation
	member  *member
	view    *view
	printer *printer
	status  *clusterpb.RunStatus
}

// needsNobody is whether the run is one that was left to its engine. One of which nothing
// was heard yet is still to begin, or to begin again.
func (f *followed) needsNobody(ctx context.Context) bool {
	if f.status != nil && !f.status.GetDetached() {
		return false
	}
	st, err := f.member.status(ctx)
	req := st.GetRequest()
	return err == nil && req.GetOneRun() && req.GetEngine()[cluster.EngineManaged] != "" && (f.status != nil || !active(st.GetRun()))
}

func (f *followed) update(u *clusterpb.RunUpdate) {
	if st := u.GetStatus(); st != nil {
		f.status = st
		f.printer.shows(f.member.name, st.GetId())
		f.view.show(false, func() bundle { return runView(withoutFailure(st)) })
	}
	for _, n := range u.GetNotes() {
		f.printer.note(n)
	}
	f.printer.burst(u.GetLines())
}

// end shows the summary and gives the run, or its failure.
func (f *followed) end() (Value, error) {
	f.printer.close()
	if f.status == nil {
		return nil, &ClusterError{Text: "the driver said nothing of the run"}
	}
	f.view.show(true, func() bundle { return summary(f.status) })
	if f.status.GetState() == "failed" {
		failure := f.status.GetFailure()
		if failure == nil {
			failure = &clusterpb.Failure{Summary: fmt.Sprintf("run %d failed", f.status.GetId()), Kind: "task"}
		}
		return nil, &RunFailed{Failure: failure, Run: f.status}
	}
	return runValue(f.member.name, f.status), nil
}

func (f *followed) broke(err error) error {
	f.printer.close()
	if errors.Is(err, io.EOF) {
		err = errors.New("the driver ended without the run's end")
	}
	return answered(err)
}

// breaker answers interrupts of a cell that waits for a run: the first stops the
// run, the second kills it, a third leaves it to itself.
type breaker struct {
	session *State
	member  *member
	out     Output
	batch   bool // the executors are given back with the run
	pressed int
}

// executors is what becomes of them.
func (b *breaker) executors() string {
	if b.batch {
		return "its executors are released"
	}
	return "the cluster stays"
}

func (b *breaker) interrupt(run int32) error {
	b.pressed++
	grace, word := stopGrace, "stopping the run: its tasks have 30 s to write a checkpoint; interrupt again to kill them\n"
	switch b.pressed {
	case 1:
	case 2:
		grace, word = 0, "killing the run; "+b.executors()+"\n"
	default:
		if b.batch {
			return &Interrupted{Text: "no longer waiting; " + b.executors()}
		}
		return &Interrupted{Text: "no longer waiting; " + b.session.say("status") + " shows the run"}
	}
	b.out.Stderr(word)
	ctx, cancel := context.WithTimeout(b.session.context(), answerTimeout)
	defer cancel()
	if _, err := b.member.client.Stop(ctx, &clusterpb.StopRequest{Run: run, GraceMillis: grace.Milliseconds()}); err != nil {
		return fmt.Errorf("stop the run: %w", answered(err))
	}
	return nil
}

// reason is how the wait ended: an interrupted one did not succeed, whatever the
// run came to.
func (b *breaker) reason(err error) error {
	switch {
	case b.pressed == 0:
		return err
	case b.pressed == 1:
		return &Interrupted{Text: "the run was stopped; " + b.executors()}
	default:
		return &Interrupted{Text: "the run was killed; " + b.executors()}
	}
}

package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/feeding"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var waitVerb = row{
	Verb: command.Verb{
		Name: "wait", Summary: "wait until the run ends, showing progress and the tasks' lines", Magic: true, Shell: true,
		Now: true, Options: append(followOptions(), nowOption), Example: "wait",
		Long: "A notebook that is closed and opened again does not go on showing the output of its cells: " +
			"wait --now in a new cell does. The first interrupt stops the run (30 s to checkpoint), a second one kills it; " +
			"the cluster stays. In a shell it only ends the waiting for a run of run --managed --detach.",
	},
	run: (*invocation).wait, ownInterrupts: true,
}

// What a cell shows of each end of a burst, and of a line, in bytes of JSON.
const (
	burst      = 200 // lines
	burstBytes = 256 << 10
	lineBytes  = 4 << 10
)

// stopGrace is the time of a stopped task to write a checkpoint.
const stopGrace = 30 * time.Second

// wait holds the cell until the run ends. It implements train without data, too.
func (inv *invocation) wait(ctx context.Context) (result.Value, error) {
	m, err := inv.session.Pick(ctx, inv.Command)
	var v result.Value
	if err == nil {
		m.Hold()
		if st, statusErr := m.Status(ctx); statusErr == nil { // else following it says why
			inv.feed = inv.detached.Of(m.Name, st.GetRun().GetId())
		}
		if v, err = inv.waitLive(ctx, m); !session.IsOver(err) {
			return v, inv.inShell(v, err)
		}
	} else if !inv.Has("cluster") {
		return nil, err
	}
	if p := inv.session.PastCluster(inv.Command, err); p != nil && !p.Until.IsZero() { // its record has the outcome
		return inv.pastWait(ctx, p, err)
	}
	return nil, err
}

// inShell returns what a shell is told of the end of a run: it has no start for reserved executors, and its exit code
// says that somebody else has stopped the run. A notebook sees that in the run's state.
func (inv *invocation) inShell(v result.Value, err error) error {
	if !inv.session.Options.Shell {
		return err
	}
	if r, ok := v.(*result.RunValue); ok && err == nil && r.State == cluster.RunStopped {
		return &result.ClusterError{Text: fmt.Sprintf("run %d was stopped", r.ID), Code: 143}
	}
	return released(err)
}

// waitLive waits for a run of a live cluster.
func (inv *invocation) waitLive(ctx context.Context, m *session.Handle) (result.Value, error) {
	show := inv.Text("show")
	if sub := inv.session.Submission(m.Name); show == "" && sub != nil {
		show = sub.Show
	}
	return inv.follow(ctx, m, &clusterpb.FollowRequest{Show: show}, inv.shown())
}

// follow shows a run in v until its end; run 0 is the active or last one.
func (inv *invocation) follow(ctx context.Context, m *session.Handle, req *clusterpb.FollowRequest,
	v *render.View,
) (result.Value, error) {
	req.Show = cmp.Or(req.GetShow(), "all")
	req.Burst, req.BurstBytes, req.LineBytes = burst, burstBytes, lineBytes
	stream := session.OpenStream(ctx, m, inv.out, req, clusterpb.ControlClient.Follow)
	defer stream.Close()
	f := &followed{session: inv.session, inv: inv, member: m, view: v, printer: inv.followPrinter()}
	f.printer.Shows(m.Name, req.GetRun())
	broken := &breaker{session: inv.session, member: m, out: inv.out, batch: inv.oneRun}
	quiet := session.NewSilence(inv.session.Options.Patience)
	for {
		select {
		case <-quiet.Timer.C:
			quiet.Ask(ctx, stream.Handle)
		case <-inv.feedEnded():
			err := inv.feedErr()
			if f.feedFailed(err) {
				continue
			}
			if err != nil || inv.Has("more") {
				return f.fed(err)
			}
		case <-f.failing:
			f.printer.Close()
			return result.OfRun(m.Name, f.status), f.fault
		case err := <-quiet.Answers:
			quiet.Answered(inv.out, err)
		case <-inv.out.Interrupts():
			if inv.session.Options.Shell && !broken.batch && f.needsNobody(ctx) {
				return nil, &result.Interrupted{
					Text: "no longer waiting; the run continues, and " + inv.session.Say("stop -c "+m.Name) + " ends it",
				}
			}
			if err := broken.interrupt(f.status.GetId()); err != nil {
				return nil, err
			}
		case u := <-stream.Updates:
			if u.Err != nil {
				req.FromStart = req.GetFromStart() && f.status == nil // earlier lines were shown
				if err := stream.Reopen(u.Err); err != nil {
					f.printer.Close()
					return nil, err
				}
				f.member, broken.member = stream.Handle, stream.Handle
				continue
			}
			stream.Heard()
			quiet.Heard(inv.out)
			f.update(u.Msg)
			if f.status.GetWantsData() && inv.Verb.Name == "start" {
				f.printer.Close()
				f.view.Show(true, func() render.Bundle { return render.RunView(f.status) })
				return result.OfRun(m.Name, f.status), nil
			}
			if u.Msg.GetFinal() {
				feedErr := inv.awaitFeed(ctx, session.AnswerTimeout)
				v, err := f.end()
				err = cmp.Or(err, f.fault, feedErr)
				return v, broken.reason(err)
			}
		}
	}
}

// followed is the state of the run that the cell follows; owned by follow.
type followed struct {
	session *session.State
	inv     *invocation
	member  *session.Handle
	view    *render.View
	printer *render.Printer
	status  *clusterpb.RunStatus
	fault   error            // of the run's feed
	failing <-chan time.Time // when the run is given up after it; nil before
}

// feedGrace is the time in which a run whose feed has failed ends: the reason that its program gives is nearer to the
// cause.
const feedGrace = 10 * time.Second

// feedFailed is whether a feed ended in a way that the run does not survive; its end is awaited.
func (f *followed) feedFailed(err error) bool {
	failed, ok := errors.AsType[*feeding.Failed](err)
	if ok {
		f.fault, f.failing = failed, time.After(feedGrace)
	}
	return ok
}

// fed ends the cell behind a feed whose run goes on: another feed may follow.
func (f *followed) fed(err error) (result.Value, error) {
	f.printer.Close()
	if err != nil || f.status == nil {
		return nil, err
	}
	f.view.Show(true, func() render.Bundle {
		return render.RunView(f.status).Line(feedLine(f.inv.feed.Progress(), f.inv.feed.NaN(), true))
	})
	return result.OfRun(f.member.Name, f.status), nil
}

// followPrinter writes the lines of a followed run, which its driver has shortened.
func (inv *invocation) followPrinter() *render.Printer {
	p := render.NewPrinter(inv.out, inv.session.Say, 0)
	p.Cell = !inv.session.Options.Shell
	return p
}

// needsNobody returns whether the driver continues the run without clients. A run without a
// status is still to be started or restarted.
func (f *followed) needsNobody(ctx context.Context) bool {
	if f.status != nil && !f.status.GetDetached() {
		return false
	}
	st, err := f.member.Status(ctx)
	req := st.GetRequest()
	return err == nil && req.GetOneRun() && req.GetEngine()[cluster.EngineManaged] != "" &&
		(f.status != nil || !render.Active(st.GetRun()))
}

func (f *followed) update(u *clusterpb.RunUpdate) {
	if st := u.GetStatus(); st != nil {
		f.status = st
		f.printer.Shows(f.member.Name, st.GetId())
		f.view.Show(false, func() render.Bundle { return f.progress(st) })
	}
	for _, n := range u.GetNotes() {
		f.printer.Note(n)
	}
	f.printer.Burst(u.GetLines())
}

// progress shows the active run. A closed notebook keeps this output, so it has the time and
// how to see more.
func (f *followed) progress(st *clusterpb.RunStatus) render.Bundle {
	if f.inv.feed != nil { // it is this cell that feeds the run
		st.WantsData = false
	}
	b := render.RunView(render.WithoutFailure(st))
	if w := f.inv.feed.Waiting(); w != "" {
		b = b.Busy(w)
	}
	if p := f.inv.feed.Progress(); p != nil && render.Active(st) {
		b = b.Line(feedLine(p, f.inv.feed.NaN(), false))
	}
	if f.session.Options.Shell || !render.Active(st) {
		return b
	}
	return b.Faint("updated " + time.Now().Format("15:04:05") + " · after the notebook was closed, go on with " +
		f.session.Say("wait --now"))
}

// end shows the summary and returns the run, or its failure.
func (f *followed) end() (result.Value, error) {
	f.printer.Close()
	if f.status == nil {
		return nil, f.member.CutShort()
	}
	f.view.Show(true, func() render.Bundle {
		b := render.Summary(f.status)
		if p := f.inv.feed.Progress(); p != nil {
			b = b.Line(feedLine(p, f.inv.feed.NaN(), true))
		}
		return b
	})
	if f.status.GetState() == "failed" {
		failure := f.status.GetFailure()
		if failure == nil {
			failure = &clusterpb.Failure{
				Summary: fmt.Sprintf("run %d failed, and its record has no reason", f.status.GetId()), Kind: "task",
				Remedy: "%tfcluster logs shows what its tasks wrote",
			}
		}
		return nil, &result.RunFailed{Failure: failure, Run: f.status}
	}
	return result.OfRun(f.member.Name, f.status), nil
}

// breaker handles interrupts of a cell that waits for a run: the first stops the run, the
// second kills it, a third ends the wait.
type breaker struct {
	session *session.State
	member  *session.Handle
	out     render.Output
	batch   bool // the executors are released with the run
	pressed int
}

// executors says what happens to them.
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
			return &result.Interrupted{Text: "no longer waiting; " + b.executors()}
		}
		return &result.Interrupted{Text: "no longer waiting; " + b.session.Say("status") + " shows the run"}
	}
	b.out.Stderr(word)
	if _, err := session.Ask(b.session.Context(), b.member, b.member.Client.Stop,
		&clusterpb.StopRequest{Run: run, GraceMillis: grace.Milliseconds()}); err != nil {
		return fmt.Errorf("stop the run: %w", err)
	}
	return nil
}

// reason returns how the wait ended: an interrupted wait has not succeeded, whatever the run's
// outcome.
func (b *breaker) reason(err error) error {
	switch {
	case b.pressed == 0:
		return err
	case b.pressed == 1:
		return &result.Interrupted{Text: "the run was stopped; " + b.executors()}
	default:
		return &result.Interrupted{Text: "the run was killed; " + b.executors()}
	}
}

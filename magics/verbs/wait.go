package verbs

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// waitVerb is the row of wait.
func waitVerb() row {
	return row{
		Verb: command.Verb{
			Name: "wait", Summary: "wait until the run ends, showing progress and the tasks' lines", Magic: true, Shell: true, Now: true,
			Options: append(followOptions(), nowOption()), Example: "wait", Long: "A notebook that is closed and opened again does not go on showing the output of its cells: wait --now in a new cell does. The first interrupt stops the run (30 s to checkpoint), a second one kills it; the cluster stays. In a shell it only ends the waiting for a run of run --managed --detach.",
		},
		run: (*invocation).wait, ownInterrupts: true,
	}
}

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
func (inv *invocation) wait(ctx context.Context) (result.Value, error) {
	if len(inv.Words) > 0 {
		return nil, &command.NotYetError{Text: notYetFeed}
	}
	m, err := inv.session.Pick(ctx, inv.Command)
	var v result.Value
	if err == nil {
		m.Hold()
		if v, err = inv.waitLive(ctx, m); !session.IsOver(err) {
			if inv.session.Options.Shell { // which starts nothing on executors that are held
				err = released(err)
			}
			return v, err
		}
	} else if !inv.Has("cluster") {
		return nil, err
	}
	if p := inv.session.Past(inv.Command, err); p != nil && !p.Until.IsZero() { // it is over: what it left tells how its run ended
		return inv.pastWait(ctx, p, err)
	}
	return nil, err
}

// waitLive waits for a run of a cluster that is there.
func (inv *invocation) waitLive(ctx context.Context, m *session.Handle) (result.Value, error) {
	show := inv.Text("show")
	if show == "" {
		if sub := inv.session.Submission(m.Name); sub != nil {
			show = sub.Show
		}
	}
	return inv.follow(ctx, m, &clusterpb.FollowRequest{Show: show}, render.NewView(inv.out))
}

// follow shows a run in v until its end: run 0 is the active or last one.
func (inv *invocation) follow(ctx context.Context, m *session.Handle, req *clusterpb.FollowRequest, v *render.View) (result.Value, error) {
	if req.GetShow() == "" {
		req.Show = "all"
	}
	req.Burst, req.BurstBytes, req.LineBytes = burst, burstBytes, lineBytes
	stream := session.OpenStream(ctx, m, inv.out, func(ctx context.Context, c clusterpb.ControlClient) (func() (*clusterpb.RunUpdate, error), error) {
		runs, err := c.Follow(ctx, req)
		if err != nil {
			return nil, err
		}
		return runs.Recv, nil
	})
	defer stream.Close()
	f := &followed{session: inv.session, member: m, view: v, printer: inv.followPrinter()}
	f.printer.Shows(m.Name, req.GetRun())
	broken := &breaker{session: inv.session, member: m, out: inv.out, batch: inv.oneRun}
	quiet := session.NewSilence(inv.session.Options.Patience)
	for {
		select {
		case <-quiet.Timer.C:
			quiet.Ask(ctx, stream.Handle)
		case err := <-quiet.Answers:
			quiet.Answered(inv.out, err)
		case <-inv.out.Interrupts():
			if inv.session.Options.Shell && !broken.batch && f.needsNobody(ctx) {
				return nil, &result.Interrupted{Text: "no longer waiting; the run goes on, and " + inv.session.Say("stop -c "+m.Name) + " ends it"}
			}
			if err := broken.interrupt(f.status.GetId()); err != nil {
				return nil, err
			}
		case u := <-stream.Updates:
			if u.Err != nil {
				req.FromStart = req.GetFromStart() && f.status == nil // what was written before is shown
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
			if u.Msg.GetFinal() {
				v, err := f.end()
				return v, broken.reason(err)
			}
		}
	}
}

// followed is a run before the cell's eyes; owned by follow.
type followed struct {
	session *session.State
	member  *session.Handle
	view    *render.View
	printer *render.Printer
	status  *clusterpb.RunStatus
}

// followPrinter writes the lines of a run that is followed, which its driver has shortened.
func (inv *invocation) followPrinter() *render.Printer {
	p := render.NewPrinter(inv.out, inv.session.Say, 0)
	if !inv.session.Options.Shell {
		p.Cell()
	}
	return p
}

// needsNobody is whether the run is one that was left to its engine. One of which nothing
// was heard yet is still to begin, or to begin again.
func (f *followed) needsNobody(ctx context.Context) bool {
	if f.status != nil && !f.status.GetDetached() {
		return false
	}
	st, err := f.member.Status(ctx)
	req := st.GetRequest()
	return err == nil && req.GetOneRun() && req.GetEngine()[cluster.EngineManaged] != "" && (f.status != nil || !render.Active(st.GetRun()))
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

// progress is the run while it goes on. A notebook that is closed keeps it as it was then, so
// it has the time, and how to see more.
func (f *followed) progress(st *clusterpb.RunStatus) render.Bundle {
	b := render.RunView(render.WithoutFailure(st))
	if f.session.Options.Shell || !render.Active(st) {
		return b
	}
	return b.Faint("updated " + time.Now().Format("15:04:05") + " · after the notebook was closed, go on with " + f.session.Say("wait --now"))
}

// end shows the summary and gives the run, or its failure.
func (f *followed) end() (result.Value, error) {
	f.printer.Close()
	if f.status == nil {
		return nil, &result.ClusterError{Text: "the driver said nothing of the run"}
	}
	f.view.Show(true, func() render.Bundle { return render.Summary(f.status) })
	if f.status.GetState() == "failed" {
		failure := f.status.GetFailure()
		if failure == nil {
			failure = &clusterpb.Failure{Summary: fmt.Sprintf("run %d failed", f.status.GetId()), Kind: "task"}
		}
		return nil, &result.RunFailed{Failure: failure, Run: f.status}
	}
	return result.OfRun(f.member.Name, f.status), nil
}

// breaker answers interrupts of a cell that waits for a run: the first stops the
// run, the second kills it, a third leaves it to itself.
type breaker struct {
	session *session.State
	member  *session.Handle
	out     render.Output
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
			return &result.Interrupted{Text: "no longer waiting; " + b.executors()}
		}
		return &result.Interrupted{Text: "no longer waiting; " + b.session.Say("status") + " shows the run"}
	}
	b.out.Stderr(word)
	ctx, cancel := context.WithTimeout(b.session.Context(), session.AnswerTimeout)
	defer cancel()
	if _, err := b.member.Client.Stop(ctx, &clusterpb.StopRequest{Run: run, GraceMillis: grace.Milliseconds()}); err != nil {
		return fmt.Errorf("stop the run: %w", b.member.Explain(err))
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
		return &result.Interrupted{Text: "the run was stopped; " + b.executors()}
	default:
		return &result.Interrupted{Text: "the run was killed; " + b.executors()}
	}
}

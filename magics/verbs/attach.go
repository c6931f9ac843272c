package verbs

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var attachVerb = row{
	Verb: command.Verb{
		Name: "attach", Summary: "attach to a running cluster", Magic: true, Shell: true, Now: true, Words: "[NAME]",
		MaxWords: 1, Options: []command.Option{clusterOption, nowOption}, Example: "attach local-1",
		Operand: command.OperandCluster,
	},
	run: (*invocation).attach, announces: true,
}

// attach attaches to a running cluster, and starts a driver if its driver died.
func (inv *invocation) attach(ctx context.Context) (result.Value, error) {
	announced := inv.session.Announcement(ctx)
	st, err := inv.attachTo(ctx)
	about := "cluster " + st.GetName() + ": "
	for line := range strings.Lines(announced) {
		if err != nil || !strings.HasPrefix(strings.TrimPrefix(line, session.AttachedTo), about) {
			inv.out.Stdout(line)
		}
	}
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(session.AttachedLine(st) + "\n")
	return result.OfCluster(st), nil
}

func (inv *invocation) attachTo(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	if len(inv.Words) > 0 {
		if inv.Has("cluster") {
			return nil, command.Usagef(inv.Verb, "the cluster's name is given twice: give it once, as a word or with -c")
		}
		if err := inv.Name(inv.Words[0]); err != nil {
			return nil, err
		}
	}
	m, err := inv.session.PickOrRecover(ctx, inv.Command, false)
	if err != nil {
		return nil, err
	}
	st, err := m.Status(ctx)
	if err != nil {
		return nil, m.Explain(err)
	}
	if m.Recovered && !st.GetBeginsItself() {
		if err := inv.awaitReturn(ctx, m, st); err != nil {
			return nil, err
		}
		if st, err = m.Status(ctx); err != nil {
			return nil, m.Explain(err)
		}
	}
	ours := int32(0)
	if m.Held() {
		ours = 1
	}
	inv.session.SetCurrent(m, st.GetClients() <= ours) // no other client: the cluster is released with this notebook
	m.Hold()
	return st, nil
}

// awaitReturn waits until the executors have joined the driver that was just started, and shows
// which were replaced. The new driver applies the reservation's timeout.
func (inv *invocation) awaitReturn(ctx context.Context, m *session.Handle, st *clusterpb.ClusterStatus) error {
	stream, err := m.Client.Reserve(ctx, st.GetRequest())
	if err != nil {
		return m.Explain(err)
	}
	v := render.NewView(inv.out)
	for waits := false; ; waits = true {
		u, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return m.CutShort()
		case ctx.Err() != nil:
			return &result.Interrupted{
				Text: "stopped waiting; cluster " + m.Name + " keeps running: " + inv.session.Say("status") + " shows it",
			}
		case err != nil:
			return m.Explain(err)
		}
		for _, n := range u.GetNotes() {
			inv.out.Stderr(render.NoteText(n) + "\n")
		}
		if u.GetFailure() != nil {
			return &result.RunFailed{Failure: u.GetFailure()}
		}
		if waits || !u.GetReady() {
			v.Show(u.GetReady(), func() render.Bundle { return render.Reservation(m.Name, st.GetRoles(), u) })
		}
		if u.GetReady() {
			return nil
		}
	}
}

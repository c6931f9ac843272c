package verbs

import (
	"context"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// attachVerb is the row of attach.
func attachVerb() row {
	return row{
		Verb: command.Verb{
			Name: "attach", Summary: "take up a cluster that lives already", Magic: true, Shell: true, Now: true, Words: "[NAME]", MaxWords: 1,
			Options: []command.Option{clusterOption(), nowOption()}, Example: "attach local-1", Operand: command.OperandCluster,
		},
		run: (*invocation).attach, announces: true,
	}
}

// attach takes up a cluster that lives already, starting a driver where it died.
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
			return nil, command.Usagef(inv.Verb, "the name is given twice")
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
	inv.session.Prefer(m, st.GetClients() <= 1) // nobody else holds it: this notebook's end is its end from now on
	return st, nil
}

package magics

import (
	"context"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// attach takes up a cluster that lives already, starting a driver where it died.
func (inv *invocation) attach(ctx context.Context) (Value, error) {
	announced := inv.session.Announcement(ctx)
	st, err := inv.attachTo(ctx)
	about := "cluster " + st.GetName() + ": "
	for line := range strings.Lines(announced) {
		if err != nil || !strings.HasPrefix(strings.TrimPrefix(line, attachedTo), about) {
			inv.out.Stdout(line)
		}
	}
	if err != nil {
		return nil, err
	}
	inv.out.Stdout(attachedLine(st) + "\n")
	return clusterValue(st), nil
}

func (inv *invocation) attachTo(ctx context.Context) (*clusterpb.ClusterStatus, error) {
	if len(inv.Words) > 0 {
		if inv.Has("cluster") {
			return nil, usagef(inv.Verb, "the name is given twice")
		}
		if err := inv.name(inv.Words[0]); err != nil {
			return nil, err
		}
	}
	m, err := inv.session.pickOrRecover(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	inv.session.prefer(m, st.GetClients() <= 1) // nobody else holds it: this notebook's end is its end from now on
	return st, nil
}

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
		v, err := inv.Verb.option("cluster").read(inv.Words[0])
		if err != nil {
			return nil, usagef(inv.Verb, "%v", err)
		}
		inv.values["cluster"] = []value{v}
	}
	m, err := inv.session.pickOrRecover(ctx, inv)
	if err != nil {
		return nil, err
	}
	st, err := m.status(ctx)
	if err != nil {
		return nil, answered(err)
	}
	inv.session.mu.Lock()
	inv.session.use(m.name)
	// Nobody else holds it: this notebook's end is its end from now on.
	m.owned = m.owned || st.GetClients() <= 1
	inv.session.mu.Unlock()
	return st, nil
}

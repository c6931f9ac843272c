package yarn_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// excludesNode: a node on which containers fail gets no further ones, until a reset. No container may run on
// either node when it is called.
func excludesNode(t *testing.T, h *hadooptest.Cluster) {
	const broken = 0
	h.BreakDisk(broken)
	mend := true
	defer func() {
		if mend {
			h.MendDisk(broken)
		}
	}()
	host := func(node int) string { on, _, _ := strings.Cut(h.NodeID(node), ":"); return on }
	most := func(r *clusterpb.ReserveRequest) { // most of a node, so that a second container does not fit there
		r.Roles[0].Each = &clusterpb.Resources{MemoryBytes: 5 << 30}
	}
	first := harness(t, h).Start(t, "worker=1", most)
	if got := hostOf(t, first, "worker:0"); got != host(1) {
		t.Errorf("worker:0 is on %s, whose disk is broken", got)
	}
	waits := func(c *clustertest.Cluster) {
		t.Helper()
		clustertest.WaitFor(t, "the message that a node is excluded", func() bool {
			st, err := c.Status(t.Context(), &clusterpb.StatusRequest{})
			return err == nil && slices.ContainsFunc(st.GetExecutors(), func(x *clusterpb.ExecutorStatus) bool {
				return strings.HasSuffix(x.GetCause(), "; node "+host(broken)+" is excluded") &&
					!strings.Contains(x.GetCause(), "\n")
			})
		})
	}
	second := harness(t, h).Launch(t, "worker=1", most)
	waits(second)
	first.End()
	second.Ready()
	if got := hostOf(t, second, "worker:0"); got != host(1) {
		t.Errorf("worker:0 is on %s, which was excluded", got)
	}
	third := harness(t, h).Launch(t, "worker=1", most)
	waits(third)
	mend = false
	h.MendDisk(broken)
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	reset, err := third.Reset(ctx, &clusterpb.ResetRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for {
		u, err := reset.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if u.GetDone() {
			if u.GetFailure() != nil {
				t.Errorf("the reset failed: %v", u.GetFailure())
			}
			break
		}
	}
	third.Ready()
	if got := hostOf(t, third, "worker:0"); got != host(broken) {
		t.Errorf("worker:0 is on %s, want the repaired %s", got, host(broken))
	}
	third.End()
	second.End()
}

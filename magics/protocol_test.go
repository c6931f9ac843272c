package magics

import (
	"errors"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
)

// TestStartOnAnOlderDriver: a driver of an earlier version would pass over what it does not
// know, such as --working-dir. The start is refused and names both versions.
func TestStartOnAnOlderDriver(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	f := d.add(&clusterpb.ReserveRequest{Name: "c", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
	f.protocol = 0
	_, err := runCode(t.Context(), s, "%tfcluster start -c c --working-dir /mnt main_fun", newRecord(), &fakePython{})
	var refused *result.ClusterError
	if !errors.As(err, &refused) || refused.Code != 69 ||
		!strings.Contains(err.Error(), "cluster c was reserved by tfcluster 9.9") || len(f.starts) > 0 {
		t.Errorf("it answers %v, and %d starts are sent", err, len(f.starts))
	}
}

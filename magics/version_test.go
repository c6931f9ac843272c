package magics

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

// olderDrivers are drivers of another version than the session's.
type olderDrivers struct{ *fakeDrivers }

type olderDriver struct{ clusterpb.ControlClient }

func (d olderDrivers) Dial(ctx context.Context, name string) (clusterpb.ControlClient, error) {
	c, err := d.fakeDrivers.Dial(ctx, name)
	return olderDriver{c}, err
}

func (d olderDriver) Status(ctx context.Context, req *clusterpb.StatusRequest,
	opts ...grpc.CallOption,
) (*clusterpb.ClusterStatus, error) {
	st, err := d.ControlClient.Status(ctx, req, opts...)
	st.Version = "0.0.9"
	return st, err
}

// TestVersion: version tells this program's, and the driver's where a cluster is there; one that is
// named is to be there.
func TestVersion(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := NewSession(t.Context(), session.Options{
		Engines: engines(), Connector: olderDrivers{d}, Version: "0.1.0", WorkingDir: "/work/dir", Client: "test",
	})
	t.Cleanup(s.Close)
	out := newRecord()
	if _, err := runCode(t.Context(), s, "%tfcluster version -c none", out, nil); err == nil ||
		!strings.Contains(err.Error(), "there is no cluster none") {
		t.Errorf("a cluster that is not there: %v", err)
	}
	for _, c := range []struct{ cluster, want string }{
		{"", "out| this program: tfcluster 0.1.0"},
		{"a", "out| this program: tfcluster 0.1.0\nout| driver of cluster a: tfcluster 0.0.9"},
	} {
		if c.cluster != "" {
			d.add(&clusterpb.ReserveRequest{Name: c.cluster})
		}
		if text := strings.TrimSpace(must(t, s, "%tfcluster version --now").settle()); text != c.want {
			t.Errorf("%q, want %q", text, c.want)
		}
	}
}

package coordinator

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestAllocationFailure: a driver that cannot take a cluster over says what becomes of it.
func TestAllocationFailure(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		idle          int64
		saved         []byte
		err           error
		summary, next string
	}{
		{0, nil, errors.New("no such queue"), "no such queue", "correct what the reason names"},
		{
			0, nil, errors.New("mkdir /x: no space left on device"), "mkdir /x",
			"free space, or file entries (df -i), on that disk; then %tfcluster reserve again",
		},
		{
			1, []byte("{}"), errors.New("no such queue"), "cluster c cannot be taken over and is given up: no such queue",
			"%tfcluster reserve makes another; the executors of this one end when",
		},
		{
			0, []byte("{}"), errors.New("no such queue"), "cluster c cannot be taken over and is given up: no such queue",
			"%tfcluster reserve makes another; --idle never keeps the executors of this one: end their",
		},
		{
			0, []byte("{}"), fmt.Errorf("no answer: %w", cluster.ErrEngineAway),
			"cluster c is not taken over yet: no answer: the cluster may still run: %tfcluster attach", "",
		},
	} {
		c := &Coordinator{cfg: Config{
			Name: "c", Request: &clusterpb.ReserveRequest{IdleMillis: tt.idle},
			Recovered: Recovered{Saved: tt.saved, Allocation: "application_1"},
		}}
		if f := c.allocationFailure(tt.err); !strings.HasPrefix(f.GetSummary(), tt.summary) ||
			!strings.HasPrefix(f.GetRemedy(), tt.next) || (tt.next == "") != (f.GetRemedy() == "") {
			t.Errorf("%v: %v", tt.err, f)
		}
	}
}

// TestStateNotSaved: the note says what to do about the cause, where that is known.
func TestStateNotSaved(t *testing.T) {
	t.Parallel()
	const prefix = "the cluster's state could not be saved, so a driver that dies now cannot be replaced: "
	for cause, want := range map[string]string{
		"write /x: no space left on device": prefix +
			"write /x: no space left on device; free space, or file entries (df -i), on that disk on the driver's host",
		"open /x: too many open files": prefix + "open /x: too many open files; raise the limit of open files (ulimit -n) " +
			"on the driver's host, and reserve again: the driver keeps the limit that it began with",
		"open /x: permission denied": prefix + "open /x: permission denied",
	} {
		c := coordinate(t, true)
		<-c.saved // the engine has answered
		c.do(func() {
			c.cfg.Hooks.SaveState = func(string, []byte, int32, bool) error { return errors.New(cause) }
			c.saveState()
			if !c.notes.has(want) {
				t.Errorf("%s: %v", cause, c.notes.kept)
			}
		})
	}
}

package magics

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestStartAsksOnce: start asks for the cluster's status once, and again after the driver may be another one.
func TestStartAsksOnce(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(&clusterpb.ReserveRequest{
		Name: "local-1", Backend: "local", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}},
	})
	f.leave = make(chan struct{})
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster attach local-1")
	asks := func() int {
		f.mu.Lock()
		before := f.statuses
		f.mu.Unlock()
		must(t, s, "%tfcluster start -c local-1 main_fun")
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.statuses - before
	}
	waitUntil(t, "start without a question", func() bool { return asks() == 0 })
	close(f.leave)
	waitUntil(t, "start with a question", func() bool { return asks() == 1 })
	if n := asks(); n != 1 {
		t.Errorf("without a presence start asks %d times", n)
	}
}

// TestStartOfSilentDriver: a start whose driver hangs ends with that.
func TestStartOfSilentDriver(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(&clusterpb.ReserveRequest{
		Name: "local-1", Backend: "local", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}},
	})
	f.leave = make(chan struct{})
	s := NewSession(t.Context(), session.Options{
		Engines: engines(), Connector: d, Python: "python3", WorkingDir: "/work/dir", Client: "test",
		Patience: 20 * time.Millisecond,
	})
	t.Cleanup(s.Close)
	must(t, s, "%tfcluster attach local-1")
	f.mu.Lock()
	f.stuck = true
	f.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := runCode(t.Context(), s, "%tfcluster start -c local-1 main_fun", newRecord(), &fakePython{})
		ended <- err
	}()
	waitUntil(t, "the start", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.starts) == 1
	})
	f.mu.Lock()
	f.gone = status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	f.mu.Unlock()
	d.mu.Lock()
	d.silent["local-1"] = true
	d.mu.Unlock()
	if err := <-ended; err == nil ||
		!strings.Contains(err.Error(), "process 4711, does not answer; the start was sent, and may") {
		t.Errorf("start ends with %v", err)
	}
}

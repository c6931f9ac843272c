package magics

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestDriverRestarted: wait and logs -f go on at the driver that the engine starts in the place of
// one that died, and show no line twice.
func TestDriverRestarted(t *testing.T) {
	t.Parallel()
	first, second := &clusterpb.Line{Task: "worker:0", Text: "first", UnixNano: 7, Seq: 4},
		&clusterpb.Line{Task: "worker:0", Text: "second", UnixNano: 7, Seq: 5}
	running := &clusterpb.RunStatus{Id: 1, State: "running", Program: "main_fun"}
	done := &clusterpb.RunStatus{Id: 2, State: "finished", Program: "main_fun"}
	for _, lost := range []error{
		status.Error(codes.Unavailable, "error reading from server: EOF"),
		status.Error(codes.Aborted, "the driver is started again"),
	} {
		d := newFakeDrivers(t)
		f := d.add(
			&clusterpb.ReserveRequest{Name: "night", Backend: "yarn", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
		d.hosted = true
		f.mu.Lock()
		f.run, f.follow, f.lines = running,
			[]*clusterpb.RunUpdate{{Status: running, Lines: &clusterpb.Lines{Head: []*clusterpb.Line{first}}}},
			[]*clusterpb.Line{first}
		f.lost = func(f *fakeCluster) error { // it dies behind the first line, and the next one is there
			f.follow, f.lines, f.lost = []*clusterpb.RunUpdate{
				{Status: done, Lines: &clusterpb.Lines{Head: []*clusterpb.Line{second}}, Final: true},
			}, []*clusterpb.Line{second}, nil
			return lost
		}
		again := f.lost
		f.mu.Unlock()
		s := newTestShell(t, d, t.TempDir())
		out := newRecord()
		v, err := s.RunArgv(t.Context(), []string{"wait", "-c", "night"}, out, nil)
		shown := out.settle()
		if r, ok := v.(*result.RunValue); err != nil || !ok || r.ID != 2 || strings.Count(shown, "first") != 1 ||
			strings.Count(shown, "second") != 1 || strings.Count(shown, "or for the one that its engine starts") != 1 {
			t.Errorf("%v: wait ends with %v, %v:\n%s", lost, v, err, shown)
		}
		f.mu.Lock()
		f.lost, f.lines, f.kept, f.ends = again, []*clusterpb.Line{first},
			map[string]uint64{"worker:0": 3, "worker:1": 8}, true
		f.mu.Unlock()
		out = newRecord()
		_, err = s.RunArgv(t.Context(), []string{"logs", "-f", "-c", "night"}, out, nil)
		shown = out.settle()
		if err != nil || strings.Count(shown, "first") != 1 || strings.Count(shown, "second") != 1 {
			t.Errorf("%v: logs -f ends with %v:\n%s", lost, err, shown)
		}
		f.mu.Lock()
		if last := f.logs[len(f.logs)-1]; len(f.logs) != 2 || last.GetSinceUnixNano() != 0 || last.GetLast() != 0 ||
			last.GetAfterRun() != 1 || fmt.Sprint(last.GetAfter()) != "map[worker:0:5 worker:1:8]" {
			t.Errorf("%v: the next driver is asked %v", lost, f.logs)
		}
		f.mu.Unlock()
	}
}

// TestDriverRestartedEarly: if a driver dies before it has sent all stored lines, logs -f requests the same lines
// from the next one and shows those that it has not shown.
func TestDriverRestartedEarly(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(
		&clusterpb.ReserveRequest{Name: "night", Backend: "yarn", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
	d.hosted = true
	line := func(seq uint64, text string) *clusterpb.Line {
		return &clusterpb.Line{Task: "worker:0", Text: text, UnixNano: 7, Seq: seq}
	}
	f.mu.Lock()
	f.run, f.ends, f.lines = &clusterpb.RunStatus{Id: 1, State: "running"}, true, []*clusterpb.Line{line(3, "first")}
	f.lost = func(f *fakeCluster) error {
		f.lines, f.lost, f.kept = []*clusterpb.Line{line(3, "first"), line(4, "second")}, nil,
			map[string]uint64{"worker:0": 5}
		return status.Error(codes.Unavailable, "error reading from server: EOF")
	}
	f.mu.Unlock()
	out := newRecord()
	_, err := newTestShell(t, d, t.TempDir()).RunArgv(t.Context(), []string{"logs", "-f", "-c", "night"}, out, nil)
	if shown := out.settle(); err != nil || strings.Count(shown, "first") != 1 || strings.Count(shown, "second") != 1 {
		t.Errorf("logs -f ends with %v:\n%s", err, shown)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.logs) != 2 || f.logs[1].GetLast() != 100 || len(f.logs[1].GetAfter()) != 0 {
		t.Errorf("the next driver is asked %v", f.logs)
	}
}

// TestOverInWords: once a cluster has ended, each verb says since when, why and what next, until
// another one is reserved.
func TestOverInWords(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	a := &fakeArchive{}
	s := NewSession(t.Context(), session.Options{
		Engines: withHistory(a), Connector: d, Python: "python3", WorkingDir: t.TempDir(), Client: "test", History: a,
	})
	t.Cleanup(s.Close)
	must(t, s, "%tfcluster reserve --workers 1 --name psc")
	f := d.get("psc")
	f.mu.Lock()
	f.gone = status.Error(codes.Unavailable, "error reading from server: EOF")
	close(f.over)
	f.mu.Unlock()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	a.pasts = []*state.ClusterRecord{{Name: "psc", Dir: t.TempDir(), Until: until, Why: "the SparkSession was stopped"}}
	const want = "cluster psc is over since 2026-01-02 03:04:05: the SparkSession was stopped; " +
		"%tfcluster reserve makes another, %tfcluster logs -c psc shows its lines"
	for _, line := range []string{"status", "start main_fun", "attach psc", "reset", "gpus", "status", "shutdown"} {
		if _, err := runCode(t.Context(), s, "%tfcluster "+line, newRecord(), &fakePython{}); err == nil ||
			err.Error() != want {
			t.Errorf("%s says %v", line, err)
		}
	}
}

// TestOverAfterRestart: the next kernel of a notebook says how the last one's cluster ended, where
// nobody asked for that; another notebook's kernel does not.
func TestOverAfterRestart(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	a := &fakeArchive{pasts: []*state.ClusterRecord{
		{Name: "psc", Owner: "a.json", Until: until, Why: "the notebook's SparkSession that it was on is over"},
		{Name: "old", Owner: "b.json", Until: until, Why: "idle"},
		{Name: "new", Owner: "b.json", Until: until},
	}}
	for owner, want := range map[string]string{
		"a.json": "cluster psc is over since 2026-01-02 03:04:05: the notebook's SparkSession that it was on is over; " +
			"%tfcluster reserve makes another, %tfcluster logs -c psc shows its lines",
		"b.json": "there is no cluster; %tfcluster reserve makes one",
		"c.json": "there is no cluster; %tfcluster reserve makes one",
	} {
		s := NewSession(t.Context(), session.Options{
			Engines: engines(), Connector: newFakeDrivers(t), Owner: owner, Python: "python3", WorkingDir: "/work/dir",
			Client: "test", History: a,
		})
		t.Cleanup(s.Close)
		if _, err := runCode(t.Context(), s, "%tfcluster status", newRecord(), nil); err == nil || err.Error() != want {
			t.Errorf("%s: status says %v", owner, err)
		}
	}
}

// TestAttachShowsWhatIsNew: attach to a cluster whose driver died waits for the executors and shows
// which of them are new.
func TestAttachShowsWhatIsNew(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(
		&clusterpb.ReserveRequest{Name: "yarn-1", Backend: "yarn", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}}})
	f.reserve = []*clusterpb.ReserveUpdate{{
		Waiting: "0 of 2 executors came", Executors: executors(f.request.GetRoles(), "pending"),
		Notes: []*clusterpb.Note{{Text: "application_1_0001 has ended; application_1_0002 replaces it", Warning: true}},
	}}
	d.dead["yarn-1"] = true
	s := newTestSession(t, d, "")
	out := newRecord()
	if _, err := runCode(t.Context(), s, "%tfcluster attach yarn-1", out, nil); err != nil {
		t.Fatal(err)
	}
	shown := out.settle()
	for _, want := range []string{
		"err| warning: application_1_0001 has ended; application_1_0002 replaces it\n", "2 workers · 2 ready",
		"out| attached to cluster yarn-1: ",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("no %q in\n%s", want, shown)
		}
	}
}

// TestSilentDriver: wait warns of a driver that hangs; reset and shutdown --force end it, other
// verbs name them.
func TestSilentDriver(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		verb string
		ends bool
	}{{"reset -c local-1", true}, {"shutdown --force -c local-1", true}, {"shutdown -c local-1", false}, {
		"attach local-1", false,
	}} {
		d := newFakeDrivers(t)
		d.add(
			&clusterpb.ReserveRequest{Name: "local-1", Backend: "local", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}}})
		d.silent["local-1"] = true
		s := newTestSession(t, d, "")
		_, err := runCode(t.Context(), s, "%tfcluster "+tt.verb, newRecord(), &fakePython{})
		if ended := err == nil; ended != tt.ends ||
			!ended && !strings.Contains(err.Error(), "process 4711, does not answer; %tfcluster reset -c local-1 ends it") {
			t.Errorf("%s ends with %v", tt.verb, err)
		}
	}
	d := newFakeDrivers(t)
	f := d.add(
		&clusterpb.ReserveRequest{Name: "local-1", Backend: "local", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}}})
	running := &clusterpb.RunStatus{Id: 1, State: "running"}
	f.run, f.hang, f.follow = running, true, []*clusterpb.RunUpdate{{Status: running}}
	s := NewSession(t.Context(), session.Options{
		Engines: engines(), Connector: d, Python: "python3", WorkingDir: "/work/dir", Client: "test",
		Patience: 20 * time.Millisecond,
	})
	t.Cleanup(s.Close)
	out := newRecord()
	ended := make(chan error, 1)
	go func() {
		_, err := runCode(t.Context(), s, "%tfcluster wait -c local-1", out, &fakePython{})
		ended <- err
	}()
	out.await(t, "run 1")
	f.mu.Lock()
	f.gone = status.Error(codes.DeadlineExceeded, "context deadline exceeded")
	f.mu.Unlock()
	d.mu.Lock()
	d.silent["local-1"] = true
	d.mu.Unlock()
	out.await(t, "warning: the driver has sent nothing about the run for")
	f.mu.Lock()
	f.gone = nil
	answered := f.statuses
	f.mu.Unlock()
	waitUntil(t, "answer", func() bool { // otherwise the error of a call under way may come behind the end of the run
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.statuses > answered
	})
	close(f.stopped)
	if err := <-ended; err != nil {
		t.Errorf("wait ends with %v", err)
	}
	if text := out.settle(); strings.Count(text, "warning: the driver has sent nothing") != 1 ||
		!strings.Contains(text, "the driver answers again") {
		t.Errorf("the cell shows\n%s", text)
	}
}

// TestReserveAfterLostDriver: reserve makes a new cluster only if the driver of the existing one has ended.
func TestReserveAfterLostDriver(t *testing.T) {
	t.Parallel()
	late, broken := status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error()),
		status.Error(codes.Unavailable, "error reading from server: EOF")
	for name, tt := range map[string]struct {
		gone                 error
		dead, silent, hosted bool
		want                 string // part of the error; "": a new cluster
	}{
		"died": {gone: broken, dead: true},
		"does not answer": {
			gone: late, silent: true, want: "process 4711, does not answer; %tfcluster reset -c local-1 ends it",
		},
		"answered too late": {gone: late, want: "did not answer in time"},
		"is restarted":      {gone: broken, dead: true, hosted: true, want: "starts it again"},
		"refused":           {gone: status.Error(codes.PermissionDenied, "not your cluster"), want: "not your cluster"},
	} {
		d := newFakeDrivers(t)
		s := newTestSession(t, d, "")
		must(t, s, "%tfcluster reserve")
		f := d.get("local-1")
		f.mu.Lock()
		f.gone = tt.gone
		f.mu.Unlock()
		d.mu.Lock()
		d.dead["local-1"], d.silent["local-1"], d.hosted = tt.dead, tt.silent, tt.hosted
		d.mu.Unlock()
		_, err := runCode(t.Context(), s, "%tfcluster reserve", newRecord(), &fakePython{})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: reserve ends with %v, want %q", name, err, tt.want)
		}
		if made := d.get("local-2") != nil; made != (tt.want == "") {
			t.Errorf("%s: another cluster was made: %t", name, made)
		}
	}
}

// TestReattachToSilentDriver: the first cell of the next kernel says what the driver's silence means and what to do,
// without gRPC's words.
func TestReattachToSilentDriver(t *testing.T) {
	t.Parallel()
	late := status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error())
	for want, silent := range map[string]bool{
		"cluster local-1 cannot be attached again: the driver of cluster local-1, process 4711, does not answer; " +
			"%tfcluster reset -c local-1 ends it": true,
		"cluster local-1 is attached, but its state is unknown (%tfcluster status -c local-1 asks again): " +
			"the cluster's driver did not answer in time": false,
	} {
		d := newFakeDrivers(t)
		f := d.add(&clusterpb.ReserveRequest{
			Name: "local-1", Backend: "local", Owner: "kernel-1.json", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}},
		})
		d.silent["local-1"], f.gone = silent, late
		out := newRecord()
		_, _ = runCode(t.Context(), newTestSession(t, d, "kernel-1.json"), "%tfcluster status", out, nil) // fails
		if text := out.settle(); !strings.Contains(text, want) || strings.Contains(text, "rpc error") {
			t.Errorf("the first cell says\n%s", text)
		}
	}
}

// interceptors make every call of a fake driver fail once it is gone.
func (f *fakeCluster) interceptors() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
				f.mu.Lock()
				gone := f.gone
				f.mu.Unlock()
				if gone != nil {
					return nil, gone
				}
				return h(ctx, req)
			}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, h grpc.StreamHandler) error {
			f.mu.Lock()
			gone := f.gone
			f.mu.Unlock()
			if gone != nil {
				return gone
			}
			return h(srv, s)
		}),
	}
}

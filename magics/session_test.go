package magics

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

func newTestSession(t *testing.T, d *fakeDrivers, owner string) *Session {
	t.Helper()
	s := NewSession(t.Context(), session.Options{
		Engines: engines(), Connector: d, Owner: owner, Python: "python3", WorkingDir: "/work/dir", Client: "test " + owner,
	})
	t.Cleanup(s.Close)
	return s
}

// inCell runs code in the background and gives what came of it.
func inCell(t *testing.T, s *Session, code string) (*record, <-chan error) {
	t.Helper()
	out, done := newRecord(), make(chan error, 1)
	go func() {
		_, err := runCode(t.Context(), s, code, out, &fakePython{})
		done <- err
	}()
	return out, done
}

func must(t *testing.T, s *Session, code string) *record {
	t.Helper()
	out := newRecord()
	if _, err := runCode(t.Context(), s, code, out, &fakePython{}); err != nil {
		t.Fatalf("%s: %v", code, err)
	}
	return out
}

func ended(t *testing.T, done <-chan error) error {
	t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(time.Minute):
		t.Fatal("the cell did not end")
		return nil
	}
}

// TestInterruptWait: the first interrupt stops the run with grace, the second kills
// it, the cluster stays.
func TestInterruptWait(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve\n%tfcluster start main_fun")
	f := d.get("local-1")
	f.mu.Lock()
	f.hang = true
	f.follow = []*clusterpb.RunUpdate{
		{Status: f.run}, {Lines: &clusterpb.Lines{Head: []*clusterpb.Line{{Task: "worker:0", Text: "going on"}}}},
	}
	f.mu.Unlock()
	out, done := inCell(t, s, "%tfcluster wait")
	out.await(t, "going on")
	out.interrupts <- struct{}{}
	out.await(t, "30 s to write a checkpoint")
	out.interrupts <- struct{}{}
	out.await(t, "killing the run")
	err := ended(t, done)
	var broke *result.Interrupted
	if !errors.As(err, &broke) || result.NewReport(err).Name != "KeyboardInterrupt" {
		t.Errorf("the cell ended with %v, want an interrupt", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.stops) != 2 || f.stops[0].GetGraceMillis() != 30_000 || f.stops[1].GetGraceMillis() != 0 ||
		f.stops[0].GetRun() != 1 {
		t.Errorf("stops are %v, want one with 30 s of grace, then one without", f.stops)
	}
	if len(f.shutdowns) != 0 {
		t.Errorf("the cluster was shut down: %v", f.shutdowns)
	}
}

// TestInterruptReserve: an interrupt releases what was asked for.
func TestInterruptReserve(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) {
		f.hang = true
		f.reserve = []*clusterpb.ReserveUpdate{
			{Executors: executors(f.request.GetRoles(), "pending"), Waiting: "queue default is full"},
		}
	}
	s := newTestSession(t, d, "")
	out, done := inCell(t, s, "%tfcluster reserve")
	out.await(t, "queue default is full")
	out.interrupts <- struct{}{}
	if err := ended(t, done); err == nil || !strings.Contains(err.Error(), "released") {
		t.Errorf("the cell ended with %v", err)
	}
	f := d.get("local-1")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.shutdowns) != 1 || !f.shutdowns[0].GetForce() {
		t.Errorf("shutdowns are %v", f.shutdowns)
	}
}

// TestInterruptLogs: an interrupt ends the following only, without an error.
func TestInterruptLogs(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) { f.lines = []*clusterpb.Line{{Task: "worker:0", Text: "a line"}} }
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve\n%tfcluster start main_fun")
	out, done := inCell(t, s, "%tfcluster logs -f --since 10m --task worker:1")
	out.await(t, "a line")
	out.interrupts <- struct{}{}
	if err := ended(t, done); err != nil {
		t.Errorf("the cell ended with %v", err)
	}
	f := d.get("local-1")
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.stops) != 0 || len(f.logs) != 1 || f.logs[0].GetTask() != "worker:1" || f.logs[0].GetLast() != 0 ||
		f.logs[0].GetSinceUnixNano() == 0 {
		t.Errorf("stops %v, logs %v", f.stops, f.logs)
	}
}

// TestShutdown: a shut-down kernel releases its clusters, a restarted one and one
// with a detached run leave them.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name            string
		restart, detach bool
		gone            bool
	}{{"shutdown", false, false, true}, {"restart", true, false, false}, {"detached", false, true, false}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDrivers(t)
			s := newTestSession(t, d, "kernel-1.json")
			must(t, s, "%tfcluster reserve\n%tfcluster start main_fun")
			if tc.detach {
				must(t, s, "%tfcluster detach")
			}
			s.Shutdown(t.Context(), tc.restart)
			f := d.get("local-1")
			select {
			case <-f.over:
				if !tc.gone {
					t.Error("the cluster is gone")
				}
			default:
				if tc.gone {
					t.Error("the cluster is still there")
				}
			}
		})
	}
}

// TestTakeUp: the next kernel of the same connection file has its clusters again, and
// another one is told what there is.
func TestTakeUp(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	first := newTestSession(t, d, "kernel-1.json")
	must(t, first, "%tfcluster reserve\n%tfcluster start main_fun")
	first.Close()
	f := d.get("local-1")
	f.mu.Lock()
	f.run = proto.CloneOf(f.run)
	f.run.Seconds = 751
	f.mu.Unlock()

	again := newTestSession(t, d, "kernel-1.json")
	out := must(t, again, "%tfcluster status")
	if text := out.settle(); !strings.HasPrefix(text, "out| attached to cluster local-1: run 1 is running 00:12:31\n") {
		t.Errorf("the first cell says\n%s", text)
	}
	if text := must(t, again, "%tfcluster status").settle(); strings.Contains(text, "attached") {
		t.Errorf("the second cell says it again\n%s", text)
	}
	for _, line := range []string{"attach", "attach local-1", "help"} { // inside Python code, the first thing said
		inPython := newTestSession(t, d, "kernel-1.json")
		for i := range 2 {
			out := newRecord()
			if _, err := inPython.RunLine(t.Context(), line, nil, out, &fakePython{}); err != nil {
				t.Fatal(err)
			}
			want := 1 // attach says it whenever it is asked
			if line == "help" && i > 0 {
				want = 0
			}
			if text := out.settle(); strings.Count(text, "attached to cluster") != want {
				t.Errorf("%s, time %d, says\n%s", line, i+1, text)
			}
		}
	}
	again.Shutdown(t.Context(), false)
	select {
	case <-f.over:
	default:
		t.Error("the cluster that was taken up outlived its notebook")
	}
}

// TestAttachDead: a cluster whose driver died is taken up by attach, reset, shutdown
// or a kernel with its name.
func TestAttachDead(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"attach local-1", "attach", "reset -c local-1", "reset", "shutdown -c local-1"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			d := newFakeDrivers(t)
			d.add(&clusterpb.ReserveRequest{
				Name: "local-1", Backend: "local", Owner: "kernel-0.json", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}},
			})
			d.dead["local-1"] = true
			s := newTestSession(t, d, "kernel-1.json")
			out := newRecord()
			if _, err := runCode(t.Context(), s, "%tfcluster status", out, nil); err == nil ||
				!strings.Contains(err.Error(), "%tfcluster attach local-1") {
				t.Errorf("status says %v", err)
			}
			if text := out.settle(); !strings.Contains(text,
				"cluster local-1: its driver died; %tfcluster attach local-1 attaches to it") {
				t.Errorf("the first cell says\n%s", text)
			}
			must(t, s, "%tfcluster "+verb)
		})
	}
}

// TestPick: with several clusters and none of one's own, a line must name one.
func TestPick(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	for _, n := range []string{"a", "b"} {
		d.add(&clusterpb.ReserveRequest{Name: n, Backend: "local", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
	}
	s := newTestSession(t, d, "")
	_, err := runCode(t.Context(), s, "%tfcluster stop --now", newRecord(), nil)
	if err == nil || !strings.Contains(err.Error(), "There are a, b: name one with -c") {
		t.Errorf("stop says %v", err)
	}
	must(t, s, "%tfcluster status -c b")
	must(t, s, "%tfcluster stop")
	_, err = runCode(t.Context(), s, "%tfcluster status -c c", newRecord(), nil)
	if err == nil || !strings.Contains(err.Error(), "there is no cluster c; there are a, b") {
		t.Errorf("status -c c says %v", err)
	}
}

func sent(data []byte) *clusterpb.Blob {
	return &clusterpb.Blob{Data: data, Size: int64(len(data))}
}

// TestStartRequest: what start asks of the driver.
func TestStartRequest(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	must(t, s, "%tfcluster start --max-restarts 2 --resume=3 --step-timeout 1m --run-timeout 2h --no-callback --env A=1 "+
		"--show chief main_fun a 'b c'")
	must(t, s, "%tfcluster start --args opts main_fun")
	must(t, s, "%%tfcluster start x y\nprint(1)\n")
	must(t, s, "%tfcluster start --again --no-keras-patch")
	f := d.get("local-1")
	f.mu.Lock()
	defer f.mu.Unlock()
	want := []*clusterpb.StartRequest{
		{
			Program: &clusterpb.Program{
				Kind: clusterpb.Program_FUNCTION, Name: "main_fun", Body: sent([]byte("pickle")), Modules: sent([]byte("zip")),
				Words: []string{"a", "b c"},
			},
			Options: &clusterpb.RunOptions{
				MaxRestarts: 2, MaxLosses: 10, Resume: "3", StepTimeoutMillis: 60_000, RunTimeoutMillis: 7_200_000,
				KerasPatch: true, Env: map[string]string{"A": "1"}, Mode: "train", Epochs: 1, WorkingDir: "/work/dir",
			},
		},
		{
			Program: &clusterpb.Program{
				Kind: clusterpb.Program_FUNCTION, Name: "main_fun", Body: sent([]byte("pickle")), Modules: sent([]byte("zip")),
				Args: sent([]byte("args")),
			},
			Options: &clusterpb.RunOptions{Callback: true, KerasPatch: true, Mode: "train", Epochs: 1, WorkingDir: "/work/dir"},
		},
		{
			Program: &clusterpb.Program{
				Kind: clusterpb.Program_CELL, Name: "cell", Body: sent([]byte("print(1)\n")), Modules: sent([]byte("zip")),
				Words: []string{"x", "y"},
			},
			Options: &clusterpb.RunOptions{Callback: true, KerasPatch: true, Mode: "train", Epochs: 1, WorkingDir: "/work/dir"},
		},
		{
			Program: &clusterpb.Program{
				Kind: clusterpb.Program_CELL, Name: "cell", Body: sent([]byte("print(1)\n")), Modules: sent([]byte("zip")),
				Words: []string{"x", "y"},
			},
			Options: &clusterpb.RunOptions{Callback: true, Mode: "train", Epochs: 1, WorkingDir: "/work/dir"},
		},
	}
	if len(f.starts) != len(want) {
		t.Fatalf("%d starts", len(f.starts))
	}
	for i, w := range want {
		if !proto.Equal(f.starts[i], w) {
			t.Errorf("start %d is\n%v, want\n%v", i, f.starts[i], w)
		}
	}
}

// TestDeadPython: a Python that does not answer is said, and does not hold up what
// needs none.
func TestDeadPython(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	_, err := runCode(t.Context(), s, "%tfcluster start main_fun", newRecord(), nil)
	if r := result.NewReport(err); r == nil || r.Name != "ClusterError" || !strings.Contains(r.Value, "does not answer") {
		t.Errorf("start without Python says %v", err)
	}
	if _, err := runCode(t.Context(), s, "%tfcluster status --now $x", newRecord(), nil); err == nil ||
		!strings.Contains(err.Error(), "one word too many") {
		t.Errorf("a --now line was expanded: %v", err)
	}
	if _, err := runCode(t.Context(), s, "%tfcluster shutdown --now", newRecord(), nil); err != nil {
		t.Errorf("shutdown --now says %v", err)
	}
}

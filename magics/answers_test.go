package magics

import (
	"context"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestAnswers: status, history and gpus return what they show.
func TestAnswers(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) { f.follow = trainingUpdates() }
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve --env TOKEN=hunter2")
	must(t, s, "%tfcluster start main_fun")
	for line, want := range map[string]string{
		"status":         `"name":"local-1"`,
		"status --run 1": `"type":"Run"`,
		"status --all":   `"name":"local-1"`,
		"history":        `"cluster":"local-1"`,
		"gpus":           `"data":[{`,
	} {
		out := newRecord()
		v, err := runCode(t.Context(), s, "%tfcluster "+line, out, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := result.JSON(v)
		if err != nil || !strings.HasPrefix(string(raw), `{"type":"Answer","data":`) ||
			!strings.Contains(string(raw), want) || strings.Contains(string(raw), "hunter2") {
			t.Errorf("%s returns %s, %v", line, raw, err)
		}
		if out.settle() == "" || result.Bundle(v) != nil {
			t.Errorf("%s shows %q and %v", line, out.settle(), result.Bundle(v))
		}
	}
}

// TestReleasedBoard: a cell that shows TensorBoard shows the curves once the cluster is released.
func TestReleasedBoard(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) {
		f.run = &clusterpb.RunStatus{
			Id: 1, State: "finished", Series: []*clusterpb.Series{{Name: "loss", Steps: []int64{1, 2}, Values: []float64{2, 1}}},
		}
	}
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	shown := must(t, s, "%tfcluster tensorboard")
	if got := shown.settle(); !strings.Contains(got, "log directory") || strings.Contains(got, "released") {
		t.Errorf("the cell shows\n%s", got)
	}
	later := must(t, s, "%tfcluster shutdown")
	id := shown.order[0]
	if got := later.bundle[id]; !strings.Contains(got, "TensorBoard of cluster local-1: the cluster was released") ||
		!strings.Contains(got, "loss") {
		t.Errorf("after the shutdown it shows\n%s", got)
	}
	must(t, s, "%tfcluster reserve")
	if got := must(t, s, "%tfcluster shutdown").settle(); strings.Contains(got, "TensorBoard") {
		t.Errorf("the next shutdown shows\n%s", got)
	}
}

// TestStaleCell: while a run goes on its cell has the time of the last update and the way to go
// on in another cell; what a run leaves has neither, and a terminal shows neither.
func TestStaleCell(t *testing.T) {
	t.Parallel()
	for _, shell := range []bool{false, true} {
		d := newFakeDrivers(t)
		d.prep = func(f *fakeCluster) {
			f.run, f.follow, f.hang = &clusterpb.RunStatus{Id: 1, State: "running"}, []*clusterpb.RunUpdate{
				{Status: &clusterpb.RunStatus{Id: 1, State: "running", Progress: &clusterpb.Report{Step: 120}}},
			}, true
		}
		s := NewSession(t.Context(), session.Options{
			Engines: engines(), Connector: d, Shell: shell, Python: "python3", WorkingDir: "/work/dir", Client: "test",
		})
		t.Cleanup(s.Close)
		if _, err := s.Launch(t.Context(), &clusterpb.ReserveRequest{Name: "here"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		out, done := newRecord(), make(chan struct{})
		go func() {
			defer close(done)
			_, _ = s.RunArgv(ctx, []string{"wait", "-c", "here"}, out, nil) // it is cut off below
		}()
		out.await(t, "step 120")
		cancel()
		<-done
		if got := strings.Contains(out.settle(), "go on with %tfcluster wait --now"); got == shell {
			t.Errorf("shell %v: the cell shows\n%s", shell, out.settle())
		}
	}
}

// TestLookingHoldsNothing: a session that only looks at a cluster is none of its clients, so
// that polling does not postpone --idle. One that waits for a run is.
func TestLookingHoldsNothing(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) { f.follow = trainingUpdates() }
	first := newTestSession(t, d, "")
	must(t, first, "%tfcluster reserve --name here")
	must(t, first, "%tfcluster start main_fun")
	s := newTestSession(t, d, "")
	for _, line := range []string{"status", "history", "gpus", "logs", "stop"} {
		must(t, s, "%tfcluster "+line+" -c here")
		if s.Find("here").Held() {
			t.Errorf("%s holds the cluster", line)
		}
	}
	must(t, s, "%tfcluster wait -c here")
	if !s.Find("here").Held() {
		t.Error("wait does not hold the cluster")
	}
}

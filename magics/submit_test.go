package magics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestSubmit: a detached run of a managed cluster is left to it once its engine has taken
// the request; what the engine refuses is told.
func TestSubmit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "large.py"), []byte("# "+strings.Repeat("x", 256<<10)+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	const hints = "err| application_1_0001 is submitted; its run needs this machine no more\n" +
		"err| tfcluster logs -f -c night follows it, tfcluster wait -c night ends as it does, " +
		"tfcluster stop -c night ends it\n"
	for _, tt := range []struct {
		name, program string
		update        *clusterpb.ReserveUpdate
		begins        bool
		shows         string
		code          int
	}{
		{
			"it is taken", "train.py", &clusterpb.ReserveUpdate{Allocation: "application_1_0001"}, true,
			"out| night\n" + hints, 0,
		},
		{"it is refused", "train.py", &clusterpb.ReserveUpdate{
			Failure: &clusterpb.Failure{Kind: "engine", Summary: "unknown queue", ExitCode: 69},
		}, true, "", 69},
		{"it is too large to travel", "large.py", &clusterpb.ReserveUpdate{Waiting: "a moment"}, false, "out| night\n", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			d := newFakeDrivers(t)
			d.prep = func(f *fakeCluster) {
				f.reserve, f.hang = []*clusterpb.ReserveUpdate{{Waiting: "waiting for the engine"}, tt.update}, tt.begins
			}
			out := newRecord()
			_, err := newTestShell(t, d, dir).RunArgv(t.Context(), []string{
				"run", "--backend", "yarn", "--managed", "--detach", "--name", "night", "--max-restarts", "2", tt.program,
			}, out, nil)
			code := 0
			if r := result.NewReport(err); r != nil {
				code = r.Code
			}
			if got := out.settle(); code != tt.code || got != tt.shows {
				t.Errorf("it ends with %v and shows\n%s", err, got)
			}
			f := d.get("night")
			f.mu.Lock()
			defer f.mu.Unlock()
			b := f.request.GetBegin()
			if begins := b.GetOptions().GetMaxRestarts() == 2 &&
				string(b.GetProgram().GetBody().GetData()) == "pass\n"; begins != tt.begins || (len(f.starts) == 0) != tt.begins {
				t.Errorf("the driver is to begin %v; %d starts were asked for", b, len(f.starts))
			}
		})
	}
}

// TestWaitForPast: of a cluster that is over wait tells how its run ended, and ends so.
func TestWaitForPast(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	over := func(name, dir, lease, ended string) *state.ClusterRecord {
		return &state.ClusterRecord{
			Name: name, Dir: dir, Until: until, Applications: []cluster.Application{{ID: lease, State: ended}},
		}
	}
	failed := filepath.Join(t.TempDir(), "runs")
	if err := os.MkdirAll(filepath.Join(failed, "run-001"), 0o700); err != nil { // one that has no record was cut off
		t.Fatal(err)
	}
	living := over("lives", pastDir(t), "application_1_0001", "running")
	living.Until = time.Time{}
	a := &fakeArchive{pasts: []*state.ClusterRecord{
		over("good", pastDir(t), "application_1_0001", "finished"),
		over("bad", failed, "application_1_0002", "finished as failed"),
		over("none", pastDir(t), "application_1_0003", "finished as failed: not reserved within 10m"), living,
		{Name: "old", Dir: "/no/dir", Until: until, LastRun: 5, Earlier: 3, Applications: []cluster.Application{
			{ID: "application_1_0004", State: "finished"},
		}},
		{Name: "older", Dir: "/no/dir", Until: until, LastRun: 1},
	}}
	s := NewSession(t.Context(), session.Options{
		Engines: withHistory(a), Connector: newFakeDrivers(t), Shell: true, Python: "python3", WorkingDir: t.TempDir(),
		Client: "test", History: a,
	})
	t.Cleanup(s.Close)
	for _, tt := range []struct {
		words []string
		code  int
		says  string
	}{
		{[]string{"wait", "-c", "good"}, 0, "run 3 · main_fun · finished · 00:01:15"},
		{[]string{"wait", "-c", "bad"}, 1, "the cluster's driver died during the run"},
		{
			[]string{"wait", "-c", "none"},
			75, "cluster none had no run: application_1_0003 finished as failed: not reserved within 10m",
		},
		{
			[]string{"wait", "-c", "old"}, 1, "cluster old had 2 runs, of which no record is left in /no/dir: it was removed, " +
				"by hand or by history --prune, and cannot be read any more",
		},
		{
			[]string{"logs", "-c", "older"}, 1, "cluster older had 1 run, of which no record is left in /no/dir: " +
				"it was removed, by hand or by history --prune, and cannot be read any more",
		},
		{[]string{"wait", "-c", "lives"}, 1, "there is no cluster lives"},
		{[]string{"wait"}, 1, "there is no cluster"},
	} {
		out := newRecord()
		_, err := s.RunArgv(t.Context(), tt.words, out, nil)
		code, got := 0, out.settle()
		if r := result.NewReport(err); r != nil {
			code, got = r.Code, got+strings.Join(r.Lines, "\n")
		}
		if code != tt.code || !strings.Contains(got, tt.says) || strings.Contains(got, "held") {
			t.Errorf("%v ends with %d:\n%s", tt.words, code, got)
		}
	}
}

// TestWaitForDetached: who waits in a shell for a run that needs nobody there does not
// end it by an interrupt; another is stopped by the first and killed by the second.
func TestWaitForDetached(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		engine map[string]string
		stops  int
		says   string
	}{
		"managed": {map[string]string{"managed": "true"}, 0, "the run continues, and tfcluster stop -c night ends it"},
		"not":     {nil, 2, "the run was killed"},
	} {
		d := newFakeDrivers(t)
		running := &clusterpb.RunStatus{Id: 1, State: "running", Detached: true}
		f := d.add(&clusterpb.ReserveRequest{
			Name: "night", OneRun: true, Engine: tt.engine, Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
		})
		f.mu.Lock()
		f.run, f.hang, f.detached = running, true, true
		f.follow = []*clusterpb.RunUpdate{
			{Status: running, Lines: &clusterpb.Lines{Head: []*clusterpb.Line{{Task: "worker:0", Text: "at work"}}}},
		}
		f.mu.Unlock()
		out := newRecord()
		out.seen = make(chan string, 100)
		ended := make(chan error, 1)
		s := newTestShell(t, d, t.TempDir())
		go func() {
			_, err := s.RunArgv(t.Context(), []string{"wait", "-c", "night"}, out, nil)
			ended <- err
		}()
		out.await(t, "at work")
		for range max(1, tt.stops) {
			out.interrupts <- struct{}{}
		}
		err := <-ended
		if r := result.NewReport(err); r == nil || r.Code != 130 || !strings.Contains(r.Value, tt.says) {
			t.Errorf("%s: it ends with %v", name, err)
		}
		f.mu.Lock()
		if len(f.stops) != tt.stops {
			t.Errorf("%s: the run was stopped: %v", name, f.stops)
		}
		f.mu.Unlock()
	}
}

// TestWaitBeforeBegin: nor does who waits for one that is yet to begin.
func TestWaitBeforeBegin(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(&clusterpb.ReserveRequest{
		Name: "night", OneRun: true, Engine: map[string]string{"managed": "true"}, Begin: &clusterpb.StartRequest{},
		Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
	})
	out := newRecord()
	out.interrupts <- struct{}{}
	_, err := newTestShell(t, d, t.TempDir()).RunArgv(t.Context(), []string{"wait", "-c", "night"}, out, nil)
	if r := result.NewReport(err); r == nil || r.Code != 130 ||
		!strings.Contains(r.Value, "the run continues, and tfcluster stop -c night ends it") {
		t.Errorf("it ends with %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.stops) != 0 {
		t.Errorf("the run was stopped: %v", f.stops)
	}
}

// TestStopBeforeBegin: to stop a run that is yet to begin is to give its cluster up.
func TestStopBeforeBegin(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	for name, oneRun := range map[string]bool{"batch": true, "interactive": false} {
		f := d.add(
			&clusterpb.ReserveRequest{Name: name, OneRun: oneRun, Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}})
		if _, err := newTestShell(t, d, t.TempDir()).RunArgv(t.Context(), []string{"stop", "-c", name}, newRecord(),
			nil); err != nil {
			t.Errorf("stop -c %s: %v", name, err)
		}
		f.mu.Lock()
		if given := len(f.shutdowns) == 1; given != oneRun {
			t.Errorf("%s is given up: %v", name, given)
		}
		f.mu.Unlock()
	}
}

// TestStopTells: whose executors go with the run that is stopped: only those of a cluster
// that began it by itself, not those of one that a client began it in and went.
func TestStopTells(t *testing.T) {
	t.Parallel()
	for words, begin := range map[string]*clusterpb.StartRequest{
		"; its executors are released": {}, "; the executors stay": nil,
	} {
		d := newFakeDrivers(t)
		f := d.add(&clusterpb.ReserveRequest{
			Name: "night", OneRun: true, Engine: map[string]string{"managed": "true"}, Begin: begin,
			Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
		})
		f.mu.Lock()
		f.run = &clusterpb.RunStatus{Id: 1, State: "running"}
		f.follow = []*clusterpb.RunUpdate{{Status: &clusterpb.RunStatus{Id: 1, State: "stopped"}, Final: true}}
		f.mu.Unlock()
		out := newRecord()
		if _, err := newTestShell(t, d, t.TempDir()).RunArgv(t.Context(), []string{"stop", "-c", "night"}, out,
			nil); err != nil {
			t.Errorf("stop: %v", err)
		}
		if got := out.settle(); !strings.Contains(got, words) {
			t.Errorf("with %v it says %q", begin, got)
		}
	}
}

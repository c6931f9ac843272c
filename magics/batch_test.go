package magics

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

func newTestShell(t *testing.T, d *fakeDrivers, dir string) *Session {
	t.Helper()
	s := NewSession(t.Context(),
		session.Options{Engines: engines(), Connector: d, Shell: true, Python: "python3", WorkingDir: dir, Client: "test"})
	t.Cleanup(s.Close)
	return s
}

// TestBatchWithoutProgram: what cannot be run reserves nothing.
func TestBatchWithoutProgram(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestShell(t, d, t.TempDir())
	_, err := s.RunArgv(t.Context(), []string{"run", "nosuch.py"}, newRecord(), nil)
	if err == nil || !strings.Contains(err.Error(), "nosuch.py") || result.NewReport(err).Code != 2 {
		t.Errorf("run of a script that is not there: %v", err)
	}
	_, err = s.RunArgv(t.Context(), []string{"run", "main_fun"}, newRecord(), nil)
	if err == nil || !strings.Contains(err.Error(),
		"cannot take main_fun: a shell has no names of a notebook; give a script") || result.NewReport(err).Code != 2 {
		t.Errorf("run of a function: %v", err)
	}
	if len(d.order) > 0 {
		t.Errorf("it reserved %v", d.order)
	}
}

// TestBatchFailure: a batch run's executors are released, so its failure does not say
// that they are held.
func TestBatchFailure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "fail.py"), []byte("raise SystemExit(17)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) {
		f.failStart = &clusterpb.Failure{
			Summary: "worker:1 exited 17", ExitCode: 17, Remedy: "%tfcluster start again: the executors are held",
		}
		// It ended before all tasks were told entered: its lines come after the word of that.
		line := &clusterpb.Line{Task: "worker:0", Text: "its last words"}
		f.follow = []*clusterpb.RunUpdate{
			{Lines: &clusterpb.Lines{Head: []*clusterpb.Line{line}}},
			{Status: &clusterpb.RunStatus{Id: 1, State: "failed", Failure: f.failStart}, Final: true},
		}
	}
	out := newRecord()
	_, err := newTestShell(t, d, dir).RunArgv(t.Context(), []string{"run", "fail.py"}, out, nil)
	if _, ok := errors.AsType[*result.RunFailed](err); !ok {
		t.Fatalf("got %v, want the run's failure", err)
	}
	if text := out.settle(); strings.Count(text, "its last words") != 1 || strings.Count(text, "see| run 1") != 1 {
		t.Errorf("it showed\n%s", text)
	}
	r := result.NewReport(err)
	if last := r.Lines[len(r.Lines)-1]; r.Code != 17 || strings.Contains(last, "held") ||
		!strings.HasSuffix(last, "/run-001") {
		t.Errorf("exit code %d, %q", r.Code, last)
	}
	f := d.get(d.order[0])
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.shutdowns) != 1 || !f.request.GetOneRun() {
		t.Errorf("released %d times, asked for by %v", len(f.shutdowns), f.request)
	}
}

// TestNotebookVerbInShell: a verb that help describes is not called unknown.
func TestNotebookVerbInShell(t *testing.T) {
	t.Parallel()
	_, err := newTestShell(t, newFakeDrivers(t), t.TempDir()).RunArgv(t.Context(), []string{"reserve"}, newRecord(), nil)
	if err == nil || !strings.Contains(err.Error(), "reserve is a notebook's verb") {
		t.Errorf("reserve in a shell: %v", err)
	}
}

// TestPrograms: what is a command and what is Python's, by the cluster's framework, and
// where no program is needed.
func TestPrograms(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	started := func(line string) *clusterpb.Program {
		t.Helper()
		must(t, s, line)
		f := d.get(d.order[len(d.order)-1])
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.starts[len(f.starts)-1].GetProgram()
	}
	must(t, s, "%tfcluster reserve --framework none --name plain")
	if p := started("%tfcluster start ./serve --port '$PORT'"); p.GetKind() != clusterpb.Program_COMMAND ||
		!slices.Equal(p.GetWords(), []string{"./serve", "--port", "$PORT"}) {
		t.Errorf("a command is %v", p)
	}
	if p := started("%tfcluster start main_fun 0.1"); p.GetKind() != clusterpb.Program_FUNCTION ||
		!slices.Equal(p.GetWords(), []string{"0.1"}) {
		t.Errorf("a function of the notebook is %v", p)
	}
	must(t, s, "%tfcluster reserve --worker-command 'make all' --name commands")
	if p := started("%tfcluster start"); p != nil {
		t.Errorf("no program is %v", p)
	}
	if _, err := runCode(t.Context(), s, "%tfcluster start -c plain --args lr ./serve", newRecord(),
		&fakePython{}); err == nil || !strings.Contains(err.Error(), "--args is for Python programs") {
		t.Errorf("a command with --args: %v", err)
	}
}

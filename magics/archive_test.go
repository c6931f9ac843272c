package magics

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// fakeArchive has folders of this host, and an engine that says what it is asked.
type fakeArchive struct {
	pasts []*state.ClusterRecord
	lives map[string]string
	now   map[string]string // outcomes
	err   error             // of the engine's logs
	used  string            // a directory
}

func (a *fakeArchive) Clusters() ([]*state.ClusterRecord, error) { return a.pasts, nil }
func (a *fakeArchive) InUse() (func(string) bool, error) {
	return func(dir string) bool { return dir == a.used }, nil
}
func (a *fakeArchive) FindByApplication(lease string) string { return a.lives[lease] }
func (a *fakeArchive) Folder(p *state.ClusterRecord) (results.Folder, error) {
	return results.LocalFolder(p.Dir), nil
}

func (a *fakeArchive) Storage(*state.ClusterRecord) (results.Storage, io.Closer, error) {
	return results.LocalStorage{}, io.NopCloser(nil), nil
}

func (*fakeArchive) IsApplication(name string) bool { return strings.HasPrefix(name, "application_") }

func (a *fakeArchive) ReadLogs(_ context.Context, r *clusterpb.ReserveRequest, places []byte, q cluster.LogQuery,
	emit func(string, []*clusterpb.Line) error,
) error {
	if a.err != nil {
		return a.err
	}
	if q.Task == "worker:9" {
		return nil
	}
	asked := []string{q.Allocation, "of " + r.GetEngine()["user"], string(places), q.Task}
	if q.Grep != nil {
		asked = append(asked, q.Grep.String())
	}
	if err := emit("worker:1, attempt 0: container_7 on n1:8041, stderr", []*clusterpb.Line{
		{Task: "agent of worker:1", Stream: clusterpb.Line_STDERR, Text: strings.Join(asked, " ")},
	}); err != nil {
		return err
	}
	return emit("", []*clusterpb.Line{{Task: "agent of worker:1", Stream: clusterpb.Line_STDERR, Text: "more"}})
}

func (a *fakeArchive) Outcomes(_ context.Context, _ *clusterpb.ReserveRequest, leases []string) map[string]string {
	found := map[string]string{}
	for _, l := range leases {
		if now := a.now[l]; now != "" {
			found[l] = now
		}
	}
	return found
}

// pastDir is what a cluster of one run left.
func pastDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	store := logstore.NewStore(dir, logstore.DefaultQuota(), nil)
	for i, text := range []string{"first", "second", "third"} {
		store.Append(&clusterpb.LogBatch{
			Run: 3, Task: "worker:0", First: uint64(i), Lines: []*clusterpb.Line{{UnixNano: int64(i + 1), Text: text}},
		})
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := protojson.Marshal(
		&clusterpb.RunStatus{Id: 3, State: "finished", Program: "main_fun", Seconds: 75, Allocation: "application_1_0001"})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "run-003", "run.json"), b, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestOver: logs, history and why of clusters that are over, by their own name and the
// engine's.
func TestOver(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	a := &fakeArchive{
		pasts: []*state.ClusterRecord{
			{Name: "yarn-1", Dir: "/no/dir", Until: until, Applications: []cluster.Application{{
				ID:    "application_1_0009",
				State: "killed: by root",
			}}, Engine: map[string]string{"user": "ann"}, Places: []byte("[7]")},
			{Name: "local-1", Dir: t.TempDir(), Until: until},
			{Name: "yarn-2", Dir: pastDir(t), Until: until, Applications: []cluster.Application{
				{ID: "application_1_0001", State: "finished"}, {ID: "application_1_0002", State: "running"},
			}},
			{Name: "yarn-3", Dir: "/no/dir", Applications: []cluster.Application{{ID: "application_1_0003", State: "running"}}},
		},
		now: map[string]string{"application_1_0002": "failed: AM expired"},
	}
	s := NewSession(t.Context(), session.Options{
		Engines: withHistory(a), Connector: newFakeDrivers(t), Python: "python3", WorkingDir: "/work/dir",
		Client: "test", History: a,
	})
	t.Cleanup(s.Close)
	for _, tt := range []struct{ line, want string }{
		{
			"logs -c yarn-2", "out| ── cluster yarn-2: released 2026-01-02 03:04:05; run 3\nout| [worker:0] first\n" +
				"out| [worker:0] second\nout| [worker:0] third\n",
		},
		{
			"logs -c yarn-2 -n 1 --task worker",
			"out| ── cluster yarn-2: released 2026-01-02 03:04:05; run 3\nout| [worker:0] third\n",
		},
		{
			"logs -c yarn-2 --grep nothing",
			"out| ── cluster yarn-2: released 2026-01-02 03:04:05; run 3\nout| no lines match\n",
		},
		{
			"logs -c yarn-2 --run 2",
			"UsageError: logs: cluster yarn-2 had no run 2; %tfcluster history -c yarn-2 lists its runs",
		},
		{
			"logs -c yarn-1", "out| ── worker:1, attempt 0: container_7 on n1:8041, stderr\n" +
				"out| [agent of worker:1] application_1_0009 of ann [7]\nout| [agent of worker:1] more\n",
		},
		{
			"logs -c application_1_0009 --task worker:1 --grep x", "out| ── worker:1, attempt 0: container_7 on n1:8041, " +
				"stderr\nout| [agent of worker:1] application_1_0009 of ann [7] worker:1 x\nout| [agent of worker:1] more\n",
		},
		{
			"logs -c yarn-2 --task container_8", "out| ── worker:1, attempt 0: container_7 on n1:8041, stderr\n" +
				"out| [agent of worker:1] application_1_0002 of   container_8\nout| [agent of worker:1] more\n",
		},
		{"logs -c application_5_0005 --task worker:9", "out| no lines match\n"},
		{
			"logs -c application_1_0009 -f", "UsageError: logs: --follow works only for the logs of tasks; " +
				"to choose lines from the container logs that the engine keeps, use --task, --grep or --lines",
		},
		{
			"logs -c local-1", "out| cluster local-1: released 2026-01-02 03:04:05; it had no run, " +
				"and its engine keeps no logs that could be read here\n",
		},
		{"logs -c yarn-9", "ClusterError: there is no cluster yarn-9; %tfcluster reserve makes one"},
		{
			"history -c application_7_0007", "ClusterError: no cluster of yours on this host was application_7_0007; " +
				"%tfcluster logs -c application_7_0007 shows what its containers wrote",
		},
		{"history -c yarn-2", `out| cluster yarn-2: released 2026-01-02 03:04:05
see| run  program   state     took      application
see|   3  main_fun  finished  00:01:15  application_1_0001 finished
see| application_1_0002 failed: AM expired, no run
`},
		{
			"why -c yarn-2",
			"out| cluster yarn-2: released 2026-01-02 03:04:05\nsee| no run is active: run 3 finished after 75 s\n",
		},
		{"why -c local-1", "out| cluster local-1: released 2026-01-02 03:04:05\nsee| no run has been started\n"},
		{
			"history -c application_1_0009", "out| cluster yarn-1: released 2026-01-02 03:04:05\nsee| no runs yet\n" +
				"see| application_1_0009 killed: by root, no run\n",
		},
		{
			"history", "out| cluster yarn-3: its driver died; %tfcluster attach yarn-3 starts another one\nsee| no runs yet\n" +
				"see| application_1_0003 running, no run\n",
		},
	} {
		out := newRecord()
		_, err := runCode(t.Context(), s, "%tfcluster "+tt.line, out, &fakePython{})
		got := out.settle()
		if r := result.NewReport(err); r != nil {
			got += r.Lines[0]
		}
		if got != tt.want {
			t.Errorf("%s shows\n%s\nwant\n%s", tt.line, got, tt.want)
		}
	}
	const typed = "%tfcluster history -c yarn-"
	if c := s.Complete(t.Context(), typed, len(typed), &fakePython{}); c == nil ||
		strings.Join(c.Matches, " ") != "yarn-3 yarn-2 yarn-1" {
		t.Errorf("offered are %v", c)
	}
	a.err = errors.New("the logs of application_1_0009 are not there yet")
	if _, err := runCode(t.Context(), s, "%tfcluster logs -c yarn-1", newRecord(), &fakePython{}); err == nil ||
		err.Error() != a.err.Error() {
		t.Errorf("the engine's own word is %v", err)
	}
}

// TestPruneHistory: history --prune removes old runs of all clusters in the folder tfcluster-runs,
// and says what it has removed and kept.
func TestPruneHistory(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "tfcluster-runs")
	old := time.Now().Add(-31 * 24 * time.Hour)
	for _, name := range []string{"a/run-001/run.json", "b/run-001/export/model"} {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(`{"state":"finished"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		for ; file != root; file = filepath.Dir(file) {
			if err := os.Chtimes(file, old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	a := &fakeArchive{pasts: []*state.ClusterRecord{{
		Name: "a", Dir: filepath.Join(root, "a"), LastRun: 1, Until: time.Now(),
		Applications: []cluster.Application{{ID: "application_1_0001"}},
	}}}
	s := NewSession(t.Context(), session.Options{
		Engines: withHistory(a), Connector: newFakeDrivers(t), Python: "python3", WorkingDir: "/work/dir",
		Client: "test", History: a,
	})
	t.Cleanup(s.Close)
	for _, tt := range []struct{ line, used, want string }{
		{"history --prune=60d", "", "out| 0 runs and 0 empty folders of clusters removed below " + root + "\n"},
		{
			"history --prune", filepath.Join(root, "a"), "out| 0 runs and 0 empty folders of clusters removed below " + root +
				"; 1 old run kept: their programs left files there\n",
		},
		{
			"history --prune -c application_1_0001", "", "out| 1 run and 1 empty folder of clusters removed below " + root +
				"; 1 old run kept: their programs left files there\n",
		},
	} {
		a.used = tt.used
		if got := must(t, s, "%tfcluster "+tt.line).settle(); got != tt.want {
			t.Errorf("%s shows %q, want %q", tt.line, got, tt.want)
		}
	}
}

// TestPruneHistoryUsage: options that exclude --prune are refused.
func TestPruneHistoryUsage(t *testing.T) {
	t.Parallel()
	s := NewSession(t.Context(), session.Options{Connector: newFakeDrivers(t), History: &fakeArchive{}})
	t.Cleanup(s.Close)
	for _, other := range []string{"--json", "--all"} {
		_, err := runCode(t.Context(), s, "%tfcluster history --prune "+other, newRecord(), &fakePython{})
		var usage *command.UsageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), other) {
			t.Errorf("with %s: %v", other, err)
		}
	}
}

// TestLives: YARN's name of a live cluster's application means that cluster, and its
// driver is asked for what the containers wrote.
func TestLives(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	f := d.add(&clusterpb.ReserveRequest{Name: "yarn-1"})
	f.lines = []*clusterpb.Line{{Task: "agent of worker:0", Text: "here"}}
	f.run = &clusterpb.RunStatus{Id: 1, State: "running", Allocation: "application_1_0001"}
	a := &fakeArchive{
		lives: map[string]string{"application_1_0001": "yarn-1"}, now: map[string]string{"application_1_0001": "running"},
	}
	s := NewSession(t.Context(), session.Options{
		Engines: withHistory(a), Connector: d, Python: "python3", WorkingDir: "/work/dir", Client: "test", History: a,
	})
	t.Cleanup(s.Close)
	must(t, s, "%tfcluster logs -c application_1_0001 --task worker:0")
	must(t, s, "%tfcluster logs --task container_1_0001_01_000002")
	must(t, s, "%tfcluster logs --task worker:0")
	var engine []bool
	f.mu.Lock()
	for _, l := range f.logs {
		engine = append(engine, l.GetEngine())
	}
	f.mu.Unlock()
	if len(engine) != 3 || f.logs[0].GetAllocation() != "application_1_0001" || !engine[0] || !engine[1] || engine[2] {
		t.Errorf("the driver was asked %v", f.logs)
	}
	if got := must(t, s, "%tfcluster history -c application_1_0001").settle(); !strings.Contains(got,
		"application_1_0001 running") {
		t.Errorf("history shows\n%s", got)
	}
}

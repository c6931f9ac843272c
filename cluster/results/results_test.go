package results

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// TestResults: Results returns for a directory what its driver would return.
func TestResults(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := logstore.NewStore(dir, logstore.Quota{Task: 1 << 20, Cluster: 1 << 20, Segment: 200}, nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range 30 {
		for _, task := range []string{"worker:0", "my-role:1"} {
			at = at.Add(time.Second)
			s.Append(&clusterpb.LogBatch{Run: 2, Task: task, First: uint64(i), Lines: []*clusterpb.Line{
				{UnixNano: at.UnixNano(), Text: fmt.Sprintf("line %d", i)},
			}})
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := protojson.Marshal(
		&clusterpb.RunStatus{Id: 2, State: "finished", Allocation: "application_1_2", Dir: "/elsewhere"})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "run-002", "run.json"), b, 0o600)
	}
	for _, name := range []string{"run-001", "run-010", "run-x", "runs"} {
		if err == nil {
			err = os.Mkdir(filepath.Join(dir, name), 0o700)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	r := &Results{Dir: dir, Folder: LocalFolder(dir)}
	runs, err := r.Runs(t.Context())
	if err != nil || len(runs) != 3 || runs[0].GetState() != "failed" || runs[1].GetAllocation() != "application_1_2" ||
		runs[1].GetDir() != filepath.Join(dir, "run-002") || runs[2].GetId() != 10 {
		t.Errorf("the runs are %v: %v", runs, err)
	}
	for _, tt := range []struct {
		q           logstore.Query
		first, last string
		n           int
	}{
		{logstore.Query{Run: 2}, "worker:0 line 0", "my-role:1 line 29", 60},
		{logstore.Query{Run: 2, Last: 5}, "my-role:1 line 27", "my-role:1 line 29", 5},
		{logstore.Query{Run: 2, Task: "my-role"}, "my-role:1 line 0", "my-role:1 line 29", 30},
		{logstore.Query{Run: 2, Task: "worker:0", Last: 1}, "worker:0 line 29", "worker:0 line 29", 1},
		{logstore.Query{Run: 1}, "", "", 0},
	} {
		lines, gaps, err := r.Lines(t.Context(), tt.q)
		word := func(i int) string { return lines[i].GetTask() + " " + lines[i].GetText() }
		if err != nil || len(gaps) > 0 || len(lines) != tt.n || tt.n > 0 && (word(0) != tt.first || word(tt.n-1) != tt.last) {
			t.Errorf("%+v: %v, %q, %v", tt.q, lines, gaps, err)
		}
	}
	gone := &Results{Dir: "/d", Folder: LocalFolder(filepath.Join(dir, "nothing"))}
	if runs, err := gone.Runs(t.Context()); err != nil || len(runs) > 0 {
		t.Errorf("empty directory: %v, %v", runs, err)
	}
}

// TestManifest: what WriteManifest wrote is read again; a run without a manifest has none, without an error.
func TestManifest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "run-002"), 0o700); err != nil {
		t.Fatal(err)
	}
	want := &clusterpb.RunManifest{Version: "1", Tasks: map[string]*clusterpb.TaskManifest{
		"worker:0": {Data: map[string]*clusterpb.DataUse{"/d": {Bytes: 1 << 40}}},
	}}
	if err := WriteManifest(rundir.Dir(dir, 2), want); err != nil {
		t.Fatal(err)
	}
	got, err := ReadManifests(t.Context(), LocalFolder(dir), []int32{1, 2})
	if err != nil || len(got) != 1 || !proto.Equal(got[2], want) {
		t.Errorf("the manifests are %v: %v", got, err)
	}
	file := filepath.Join(dir, "run-002", ManifestFile)
	if err := os.WriteFile(file, []byte(`{"version":"2","of_a_later_version":{"x":1}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if m, err := ReadManifest(t.Context(), LocalFolder(dir), 2); err != nil || m.GetVersion() != "2" {
		t.Errorf("of a later version: %v, %v", m, err)
	}
	if err := os.WriteFile(file, []byte("not JSON"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadManifests(t.Context(), LocalFolder(dir), []int32{2}); err == nil {
		t.Error("a broken file is no error")
	}
}

// TestRunsOfCluster: in a directory used by several clusters, Runs returns the runs of one
// cluster; an interrupted run keeps its recorded fields.
func TestRunsOfCluster(t *testing.T) {
	t.Parallel()
	dir, since := t.TempDir(), time.Now()
	for n, st := range map[int32]*clusterpb.RunStatus{
		1: {State: "finished", StartedUnix: since.Unix() - 10}, // of an earlier version
		2: nil,                                                 // without a record
		3: {State: "finished", StartedUnix: since.Unix(), ClusterId: "another"},
		4: {State: "running", StartedUnix: since.Unix(), ClusterId: "own", Program: "main_fun"},
		5: nil,
	} {
		folder := rundir.Dir(dir, n)
		err := os.Mkdir(folder, 0o700)
		if st != nil && err == nil {
			var b []byte
			if b, err = protojson.Marshal(st); err == nil {
				err = os.WriteFile(filepath.Join(folder, RecordFile), b, 0o600)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	numbers := func(p *state.ClusterRecord) (all []int32) {
		runs, err := (&Results{Dir: dir, Folder: LocalFolder(dir), Of: p}).Runs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.GetId() == 4 && (r.GetState() != "failed" || r.GetProgram() != "main_fun" || !Interrupted(r)) {
				t.Errorf("the interrupted run is %v", r)
			}
			all = append(all, r.GetId())
		}
		return all
	}
	if got := fmt.Sprint(numbers(&state.ClusterRecord{ID: "own", Since: since, Earlier: 3})); got != "[4 5]" {
		t.Errorf("the runs of the cluster are %v", got)
	}
	if got := fmt.Sprint(numbers(nil)); got != "[1 2 3 4 5]" {
		t.Errorf("all runs are %v", got)
	}
	if got := fmt.Sprint(numbers(&state.ClusterRecord{Since: since})); got != "[1 2 3 4 5]" {
		t.Errorf("the runs of a cluster recorded by an earlier version are %v", got)
	}
}

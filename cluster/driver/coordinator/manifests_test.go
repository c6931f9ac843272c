package coordinator

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
)

func manifestEvent(task string, attempt int32, m *clusterpb.TaskManifest) *clusterpb.TaskEvent {
	return &clusterpb.TaskEvent{Run: 1, Attempt: attempt, Task: task, Event: &clusterpb.TaskEvent_Manifest{Manifest: m}}
}

func numpy(version string) *clusterpb.TaskManifest {
	return &clusterpb.TaskManifest{Packages: map[string]string{"numpy": version}}
}

// TestDifferencesAtStart: the last update of a start names what differs between the tasks, once. The manifest is in
// the run's folder and in the history.
func TestDifferencesAtStart(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	var last *clusterpb.StartUpdate
	var notes []string
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	began := false
	stream.every = func(u *clusterpb.StartUpdate) {
		last = u
		for _, n := range u.GetNotes() {
			notes = append(notes, n.GetText())
		}
		if began {
			return
		}
		began = true
		c.post(func() {
			for _, id := range []cluster.ExecutorID{"0", "1"} {
				c.handle(lifecycle.PortPrepared{Exec: id, Run: 1, Attempt: 1, Port: 7000})
			}
			c.taskEvent(manifestEvent("worker:0", 1, numpy("2.1")))
			c.taskEvent(manifestEvent("worker:1", 1, numpy("1.26")))
			for i := range 2 {
				c.handle(lifecycle.ProgramEntered{Run: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}})
			}
		})
	}
	err := c.Control().(*control).Start(&clusterpb.StartRequest{
		Program: &clusterpb.Program{
			Kind: clusterpb.Program_SCRIPT, Name: "train.py", Words: []string{"--lr", "0.1", "--token", "abc"},
		},
		Options: &clusterpb.RunOptions{Epochs: 3, MaxRestarts: 1, Env: map[string]string{"A": "b", "X_SECRET": "1"}},
		Git:     &clusterpb.GitCommit{Commit: "c0"},
	}, stream)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"worker:1 has numpy 1.26, worker:0 2.1"}; !last.GetEntered() || !slices.Equal(notes, want) {
		t.Errorf("the notes are %q, want %q; entered %v", notes, want, last.GetEntered())
	}
	if words := last.GetRun().GetWords(); !slices.Equal(words, []string{"--lr", "0.1", "--token", "…"}) {
		t.Errorf("the recorded words are %q", words)
	}
	// Parts that come later, from the program's end, and another attempt.
	c.do(func() {
		c.taskEvent(manifestEvent("worker:1", 1, &clusterpb.TaskManifest{Seeds: map[string]string{"keras": "7"}}))
		c.runOver(nil)
	})
	h, err := c.Control().History(within(t), &clusterpb.HistoryRequest{Manifests: []int32{1, 2}})
	if err != nil || len(h.GetManifests()) != 1 {
		t.Fatalf("the history is %v: %v", h, err)
	}
	m := h.GetManifests()[1]
	if m.GetTasks()["worker:1"].GetPackages()["numpy"] != "1.26" || m.GetTasks()["worker:1"].GetSeeds()["keras"] != "7" ||
		m.GetGit().GetCommit() != "c0" {
		t.Errorf("the manifest is %v", m)
	}
	if want := map[string]string{"epochs": "3", "max-restarts": "1"}; !maps.Equal(m.GetOptions(), want) ||
		!maps.Equal(m.GetEnvironment(), map[string]string{"A": "b"}) {
		t.Errorf("the options are %v, the environment %v", m.GetOptions(), m.GetEnvironment())
	}
	var file string
	c.do(func() {
		if n := len(c.notes.since(0)); n != 1 {
			t.Errorf("there are %d notes", n)
		}
		file = filepath.Join(c.runs.find(1).status.GetDir(), results.ManifestFile)
	})
	if err := os.Truncate(file, 3); err != nil {
		t.Fatal(err)
	}
	// Unavailable with "EOF" would be taken for a lost connection to the driver.
	if _, err := c.Control().History(within(t), &clusterpb.HistoryRequest{Manifests: []int32{1}}); status.Code(err) !=
		codes.Internal {
		t.Errorf("with a damaged manifest: %v", err)
	}
}

// TestManifestAfterEntered: a part that arrives while the program runs is written soon, and its differences are noted.
func TestManifestAfterEntered(t *testing.T) {
	t.Parallel()
	r := startRunning(t, 0)
	var file string
	r.do(func() {
		file = filepath.Join(r.runs.find(1).status.GetDir(), results.ManifestFile)
		r.taskEvent(manifestEvent("worker:0", 1, numpy("2.1")))
		r.taskEvent(manifestEvent("worker:1", 1, numpy("1.26")))
	})
	for end := time.Now().Add(deadline); ; time.Sleep(20 * time.Millisecond) {
		m := &clusterpb.RunManifest{}
		text, err := os.ReadFile(file)
		if err == nil {
			err = protojson.Unmarshal(text, m)
		}
		if err == nil && len(m.GetTasks()) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the manifest is not written: %v, %v", m, err)
		}
	}
	r.do(func() {
		if !r.notes.has("worker:1 has numpy 1.26, worker:0 2.1") {
			t.Errorf("the notes are %v", r.notes.since(0))
		}
	})
	for i := range 2 {
		r.exited(i, 1, &clusterpb.Exited{})
		r.wrote(i, 1, 0, true)
	}
	r.wait()
}

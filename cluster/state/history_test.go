package state

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// TestHistory: records are read back, limited to the newest, and a live cluster is marked.
func TestHistory(t *testing.T) {
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	begin := time.Date(2026, 1, 2, 3, 4, 5, 6, time.Local)
	for i := range maxRecords + 3 {
		p := &ClusterRecord{
			Name: fmt.Sprintf("yarn-%d", i%2), Dir: "/d", Since: begin.Add(time.Duration(i) * time.Second),
			Applications: []cluster.Application{{ID: fmt.Sprintf("application_1_%d", i), State: "running"}},
		}
		if err := p.Save(); err != nil {
			t.Fatal(err)
		}
		if i == maxRecords+2 {
			continue
		}
		p.Until, p.Applications[0].State = begin, "finished"
		if err := p.Save(); err != nil {
			t.Fatal(err)
		}
	}
	last := maxRecords + 2
	state := &State{
		Name: fmt.Sprintf("yarn-%d", last%2), Since: begin.Add(time.Duration(last) * time.Second), Driver: ThisProcess(),
		Allocation: "application_1_last",
	}
	dir, err := Dir(state.Name)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = state.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	records, err := History()
	if err != nil || len(records) != maxRecords {
		t.Fatalf("there are %d: %v", len(records), err)
	}
	first, newest := records[0], records[maxRecords-1]
	if first.Applications[0].ID != "application_1_3" || newest.Applications[0].ID != fmt.Sprintf("application_1_%d",
		last) || newest.Applications[0].State != "running" || records[maxRecords-2].Applications[0].State != "finished" {
		t.Errorf("the first is %v, the newest %v", first, newest)
	}
	for i, p := range records {
		if p.Lives != (i == maxRecords-1) {
			t.Errorf("%s, %v, lives: %v", p.Name, p.Since, p.Lives)
		}
	}
	if name := FindByApplication("application_1_last"); name != state.Name {
		t.Errorf("it lives as %q", name)
	}
	if err := (&ClusterRecord{Name: "../x"}).Save(); err == nil {
		t.Error("a name that is a path is accepted")
	}
}

// TestDirsInUse: a directory is in use if it is that of a cluster with a state, also before its first run and
// by another path, or of a managed cluster that was not released.
func TestDirsInUse(t *testing.T) {
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	managed := map[string]string{cluster.EngineManaged: "true"}
	for n, p := range []*ClusterRecord{
		{Dir: "hdfs://nn/managed", Engine: managed}, {Dir: "hdfs://nn/over", Engine: managed, Until: time.Now()}, {
			Dir: "hdfs://nn/dead",
		},
	} {
		p.Name, p.Since = fmt.Sprintf("c-%d", n), time.Now()
		if err := p.Save(); err != nil {
			t.Fatal(err)
		}
	}
	s := &State{Name: "reserved", Dir: link}
	dir, err := Dir(s.Name)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = s.Save()
	}
	if err != nil {
		t.Fatal(err)
	}
	inUse, err := DirsInUse()
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]bool{
		real: true, link: true, real + "/": true, "hdfs://nn/managed/": true, "hdfs://nn/over": false,
		"hdfs://nn/dead": false, "/else": false,
	} {
		if got := inUse(dir); got != want {
			t.Errorf("%s is in use: %v", dir, got)
		}
	}
}

package coordinator

import (
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// onlyReprs reports the values of a run's status, of which its reprs alone are expected.
func onlyReprs(t *testing.T, from string, st *clusterpb.RunStatus) {
	t.Helper()
	if r := st.GetResult(); r.GetRepr() != "array(…)" || len(r.GetPickled()) > 0 || r.GetJson() != "" {
		t.Errorf("the result of %s is %v", from, r)
	}
	for _, task := range []string{"worker:0", "worker:1"} {
		if r := st.GetResults()[task]; r.GetRepr() != "array(…)" || len(r.GetPickled()) > 0 || r.GetJson() != "" {
			t.Errorf("the result of %s in %s is %v", task, from, r)
		}
	}
}

// finalStatus is the last that a client of Follow is sent of a run.
func (c *coordinated) finalStatus(run int32) *clusterpb.RunStatus {
	c.t.Helper()
	var last *clusterpb.RunStatus
	stream := &sent[clusterpb.RunUpdate]{ctx: within(c.t), every: func(u *clusterpb.RunUpdate) {
		if u.GetFinal() {
			last = u.GetStatus()
		}
	}}
	if err := c.Control().(*control).Follow(&clusterpb.FollowRequest{Run: run}, stream); err != nil {
		c.t.Fatal(err)
	}
	return last
}

// bigValue is a value of which the repr is much shorter.
func bigValue() *clusterpb.TaskResult {
	return &clusterpb.TaskResult{Pickled: make([]byte, 1000), Json: "[1]", Repr: "array(…)"}
}

// bothValues reports where a status lacks what its two tasks returned.
func bothValues(t *testing.T, st *clusterpb.RunStatus) {
	t.Helper()
	for of, r := range map[string]*clusterpb.TaskResult{
		"the run": st.GetResult(), "worker:0": st.GetResults()["worker:0"], "worker:1": st.GetResults()["worker:1"],
	} {
		if len(r.GetPickled()) != 1000 || r.GetJson() != "[1]" {
			t.Errorf("the value of %s is %v", of, r)
		}
	}
}

// TestOnlyFollowSendsValues: what tasks returned goes to a client that waits for the run's
// end; the others get the reprs.
func TestOnlyFollowSendsValues(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	rec := c.running()
	for _, task := range []string{"worker:0", "worker:1"} {
		c.returns(rec, 1, task, bigValue(), 0)
	}
	h, err := c.Control().History(within(t), &clusterpb.HistoryRequest{All: true})
	if err != nil || len(h.GetRuns()) != 1 {
		t.Fatal(h, err)
	}
	onlyReprs(t, "History", h.GetRuns()[0])
	st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	onlyReprs(t, "Status", st.GetRun())
	bothValues(t, c.finalStatus(1))
}

// TestEarlierRunsHoldNoValues: a driver holds in memory no values of its runs before the last one. It reads them for a
// client that waits for such a run.
func TestEarlierRunsHoldNoValues(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	for run := range 3 {
		rec := c.running()
		for _, task := range []string{"worker:0", "worker:1"} {
			c.returns(rec, 1, task, bigValue(), 0)
		}
		if rec.status.GetId() != int32(run+1) {
			t.Fatalf("run %d is run %d", run+1, rec.status.GetId())
		}
	}
	c.do(func() {
		onlyReprs(t, "the first run in memory", c.runs.find(1).status)
		if rec := c.runs.find(1); len(rec.tasks) > 0 || rec.manifests.of != nil {
			t.Errorf("of the first run are in memory %v, %v", rec.tasks, rec.manifests.of)
		}
		bothValues(t, c.runs.find(3).status)
	})
	bothValues(t, c.finalStatus(1))
}

// TestLoadedRunsHoldNoValues: a driver holds in memory no values of runs that an earlier one
// recorded. It reads them for a client that waits for that run.
func TestLoadedRunsHoldNoValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	record := recordWithValues(t, dir, 1)
	c := coordinate(t, true, func(cfg *Config) { cfg.Dir, cfg.LastRun = dir, 1 })
	c.do(func() { onlyReprs(t, "the record in memory", c.runs.records[0].status) })
	bothValues(t, c.finalStatus(1))
	if err := os.Remove(record); err != nil {
		t.Fatal(err)
	}
	onlyReprs(t, "Follow without the record's file", c.finalStatus(1))
}

// TestPastRunsHoldNoValues: of the runs of a cluster that is over only the last one, which
// wait shows, has its values.
func TestPastRunsHoldNoValues(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	recordWithValues(t, dir, 1)
	recordWithValues(t, dir, 2)
	runs, err := (&results.Results{Dir: dir, Folder: results.LocalFolder(dir)}).Runs(within(t))
	if err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	onlyReprs(t, "run 1", runs[0])
	bothValues(t, runs[1])
}

// recordWithValues writes the record of a run whose two tasks returned bigValue.
func recordWithValues(t *testing.T, dir string, run int32) (path string) {
	t.Helper()
	text, err := protojson.Marshal(&clusterpb.RunStatus{
		Id: run, State: "finished", EndedUnix: 1, Result: bigValue(),
		Results: map[string]*clusterpb.TaskResult{"worker:0": bigValue(), "worker:1": bigValue()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(rundir.Dir(dir, run), 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(rundir.Dir(dir, run), results.RecordFile)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

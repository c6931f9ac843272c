package coordinator

import (
	"fmt"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestMissedNotes: what was noted between two cells is shown by the next one that follows
// the run, once; what came before the run or after it is not.
func TestMissedNotes(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	begin := func(id int32) {
		rec := newRecord(&clusterpb.RunStatus{Id: id, Dir: t.TempDir()})
		rec.shown.notesShown = c.notes.total()
		c.runs.records = append(c.runs.records, rec)
	}
	c.do(func() {
		c.note("before the run", false)
		begin(1)
		c.note("worker:1 is gone", true)
		c.runOver(nil)
		c.note("after the run", false)
	})
	follow := func(run int32) string {
		var got []string
		stream := &sent[clusterpb.RunUpdate]{ctx: within(t), every: func(u *clusterpb.RunUpdate) {
			for _, n := range u.GetNotes() {
				got = append(got, n.GetText())
			}
		}}
		if err := c.Control().(*control).Follow(&clusterpb.FollowRequest{Run: run}, stream); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(got)
	}
	if got := follow(1); got != "[worker:1 is gone]" {
		t.Errorf("the first to follow the run sees %s", got)
	}
	c.do(func() {}) // behind what follow left to do
	if got := follow(1); got != "[]" {
		t.Errorf("the second sees %s", got)
	}
}

// TestStatusNotes: status shows what was noted since the last run began, with the run and the time,
// and not what concerned the runs before.
func TestStatusNotes(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	notes := func() string {
		st, err := c.Control().(*control).Status(within(t), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, n := range st.GetNotes() {
			if n.GetUnixNano() == 0 {
				t.Errorf("%v has no time", n)
			}
			got = append(got, fmt.Sprint(n.GetRun(), " ", n.GetText()))
		}
		return fmt.Sprint(got)
	}
	begin := func(id int32) {
		c.do(func() {
			c.startPlanned(&runPlan{
				req: &clusterpb.StartRequest{}, status: &clusterpb.RunStatus{Id: id, Dir: t.TempDir(), ClusterId: c.runs.cluster},
			})
		})
	}
	c.do(func() { c.note("a worker was lost", true) })
	if got := notes(); got != "[0 a worker was lost]" {
		t.Errorf("before the first run: %s", got)
	}
	begin(1)
	c.do(func() { c.note("restart 1 of 1", true) })
	if got := notes(); got != "[1 restart 1 of 1]" {
		t.Errorf("in a run: %s", got)
	}
	c.do(func() { c.runOver(nil); c.note("another was lost", true) })
	if got := notes(); got != "[1 restart 1 of 1 0 another was lost]" {
		t.Errorf("behind it: %s", got)
	}
	begin(2)
	if got := notes(); got != "[]" {
		t.Errorf("in the next run: %s", got)
	}
}

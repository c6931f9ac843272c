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
		rec.shown.told = c.notes.said()
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

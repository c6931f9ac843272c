package verdict

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func taken(round int32, task string, pid int32) *clusterpb.SnapshotTaken {
	s := &clusterpb.Snapshot{Run: 3, Task: task, Host: "b", Pid: pid}
	if pid == 0 {
		s.Error = "it has ended"
	}
	return &clusterpb.SnapshotTaken{Round: round, Snapshot: s}
}

func lost(task string) *clusterpb.MissingSnapshot {
	return &clusterpb.MissingSnapshot{Task: task, Reason: "lost"}
}

// said returns what a round has replied so far, and whether it is over.
func said(r *Round) (replies []string, over bool) {
	for {
		select {
		case reply, open := <-r.Replies:
			if !open {
				return replies, true
			}
			for _, s := range reply.GetSnapshots() {
				replies = append(replies, s.GetTask()+" taken")
			}
			for _, m := range reply.GetMissing() {
				replies = append(replies, m.GetTask()+" missing: "+m.GetReason())
			}
		default:
			return replies, false
		}
	}
}

// TestRounds: every task of a round has exactly one reply, whatever arrives in whatever order.
func TestRounds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		tasks []string
		do    func(c *Collector, r *Round)
		want  []string
		over  bool
	}{
		{"no task", nil, func(*Collector, *Round) {}, nil, true},
		{"nobody has answered", []string{"worker:0"}, func(*Collector, *Round) {}, nil, false},
		{"all answer", []string{"worker:0", "worker:1"}, func(c *Collector, r *Round) {
			c.Taken(taken(r.Number, "worker:1", 8))
			c.Taken(taken(r.Number, "worker:0", 9))
		}, []string{"worker:1 taken", "worker:0 taken"}, true},
		{"a program has ended", []string{"worker:0"}, func(c *Collector, r *Round) {
			c.Taken(taken(r.Number, "worker:0", 0))
		}, []string{"worker:0 missing: it has ended"}, true},
		{
			"an answer twice, of a task that was not asked, " +
				"of another round", []string{"worker:0", "worker:1"}, func(c *Collector, r *Round) {
				c.Taken(taken(r.Number, "worker:0", 8))
				c.Taken(taken(r.Number, "worker:0", 8))
				c.Taken(taken(r.Number, "ps:0", 8))
				c.Taken(taken(r.Number+1, "worker:1", 8))
				c.Taken(&clusterpb.SnapshotTaken{})
			}, []string{"worker:0 taken"}, false,
		},
		{
			"an executor is lost, " +
				"and its agent answers nevertheless", []string{"worker:0", "worker:1"}, func(c *Collector, r *Round) {
				c.Missing(lost("worker:1"))
				c.Taken(taken(r.Number, "worker:1", 8))
				c.Missing(lost("ps:0"))
			}, []string{"worker:1 missing: lost"}, false,
		},
		{"the time is over", []string{"worker:2", "worker:0", "worker:1"}, func(c *Collector, r *Round) {
			c.Taken(taken(r.Number, "worker:0", 8))
			c.End(r, lost)
			c.End(r, lost)
			c.Taken(taken(r.Number, "worker:1", 8))
		}, []string{"worker:0 taken", "worker:1 missing: lost", "worker:2 missing: lost"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := NewCollector()
			other := c.Begin([]string{"evaluator:0"})
			r := c.Begin(tt.tasks)
			tt.do(c, r)
			got, over := said(r)
			if !slices.Equal(got, tt.want) || over != tt.over {
				t.Errorf("replies %q, over %v; want %q, %v", got, over, tt.want, tt.over)
			}
			if _, over := said(other); over {
				t.Error("another round is over")
			}
			if over != (c.open[r.Number] == nil) {
				t.Errorf("over %v, but kept: %v", over, c.open[r.Number] != nil)
			}
		})
	}
}

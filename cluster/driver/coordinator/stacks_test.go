package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// asking is a call of Stacks.
type asking struct {
	said  chan string
	ended chan error
	leave context.CancelFunc
}

// asks calls Stacks and waits until it has asked the agents.
func (c *coordinated) asks(req *clusterpb.StacksRequest) *asking {
	ctx, leave := context.WithCancel(context.Background())
	a := &asking{make(chan string, 100), make(chan error, 1), leave}
	stream := &sent[clusterpb.StacksReply]{ctx: ctx, every: func(r *clusterpb.StacksReply) {
		for _, s := range r.GetSnapshots() {
			a.said <- fmt.Sprintf("%s of executor %s", s.GetTask(), s.GetExecutorId())
		}
		for _, m := range r.GetMissing() {
			a.said <- fmt.Sprintf("not %s: %s", m.GetTask(), m.GetReason())
		}
	}}
	go func() { a.ended <- c.Control().Stacks(req, stream) }()
	synctest.Wait()
	return a
}

// replies waits for the end of the call and returns what it said, in order of the tasks.
func (a *asking) replies(t *testing.T) string {
	t.Helper()
	if err := <-a.ended; err != nil {
		t.Errorf("stacks: %v", err)
	}
	close(a.said)
	var all []string
	for s := range a.said {
		all = append(all, s)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// question returns the number of the round in which an agent was asked last; 0: it was not.
func (c *coordinated) question(id cluster.ExecutorID) (round int32) {
	c.do(func() {
		for _, in := range c.execs.agents[id].take() {
			if asked := in.GetTakeSnapshot(); asked != nil {
				round = asked.GetRound()
			}
		}
	})
	return round
}

// answers sends an agent's snapshot of a task.
func (c *coordinated) answers(id cluster.ExecutorID, round int32, task string, pid int32) {
	c.do(func() {
		c.agentMessage(c.execs.agents[id],
			&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Snapshot{Snapshot: &clusterpb.SnapshotTaken{
				Round: round, Snapshot: &clusterpb.Snapshot{Task: task, Pid: pid, Error: "it has ended"},
			}}})
	})
}

// TestStacks: every task is asked, and named if there is no answer, with the reason.
func TestStacks(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		req  *clusterpb.StacksRequest
		do   func(c *coordinated)
		want string
	}{
		{"all answer", nil, func(c *coordinated) {
			c.answers("1", c.question("1"), "worker:1", 8)
			c.answers("0", c.question("0"), "worker:0", 9)
		}, "worker:0 of executor 0\nworker:1 of executor 1"},
		{"one is asked", &clusterpb.StacksRequest{Tasks: []string{"worker:1"}}, func(c *coordinated) {
			if round := c.question("0"); round != 0 {
				c.t.Errorf("executor 0 is asked in round %d", round)
			}
			c.answers("1", c.question("1"), "worker:1", 8)
		}, "worker:1 of executor 1"},
		{"an executor answers for the task of another one", nil, func(c *coordinated) {
			time.Sleep(time.Second / 2) // between two heartbeats
			c.silence()
			c.answers("1", c.question("1"), "worker:0", 8)
			c.answers("0", c.question("0"), "worker:0", 9)
			time.Sleep(time.Minute)
		}, "not worker:1: its agent on host1 has sent nothing for 6s\nworker:0 of executor 0"},
		{"a program has ended", nil, func(c *coordinated) {
			c.answers("1", c.question("1"), "worker:1", 0)
			c.answers("0", c.question("0"), "worker:0", 9)
		}, "not worker:1: it has ended\nworker:0 of executor 0"},
		{"one does not answer in time", &clusterpb.StacksRequest{TimeoutMillis: 1000}, func(c *coordinated) {
			c.answers("0", c.question("0"), "worker:0", 9)
			time.Sleep(2 * time.Second)
		}, "not worker:1: its agent on host1 did not answer within 1s\nworker:0 of executor 0"},
		{"a connection breaks", nil, func(c *coordinated) {
			c.answers("0", c.question("0"), "worker:0", 9)
			c.do(func() { c.agentLeft(c.execs.agents["1"], "10") })
		}, "not worker:1: its agent on host1 ended or lost its connection: its connection broke\nworker:0 of executor 0"},
		{"an agent connects again", nil, func(c *coordinated) {
			c.answers("0", c.question("0"), "worker:0", 9)
			c.up("1", 0)
		}, "not worker:1: its agent on host1 ended or lost its connection: it may connect again\nworker:0 of executor 0"},
		{"an executor is lost", nil, func(c *coordinated) {
			c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "its host is gone"}) })
			c.answers("0", c.question("0"), "worker:0", 9)
		}, "not worker:1: its agent on host1 ended or lost its connection: its host is gone\nworker:0 of executor 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := coordinate(t, true)
				c.running()
				a := c.asks(tt.req)
				tt.do(c)
				if got := a.replies(t); got != tt.want {
					t.Errorf("replies:\n%s\nwant:\n%s", got, tt.want)
				}
			})
		})
	}
}

// TestStacksNeedARun: without an active run of that number and such tasks there are none.
func TestStacksNeedARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		refused := func(req *clusterpb.StacksRequest, code codes.Code, text string) {
			t.Helper()
			if err := <-c.asks(req).ended; status.Code(err) != code || !strings.Contains(err.Error(), text) {
				t.Errorf("%v: %v", req, err)
			}
		}
		refused(nil, codes.FailedPrecondition, "no run is active")
		c.running()
		refused(&clusterpb.StacksRequest{Run: 7}, codes.FailedPrecondition, "run 7 is not active, run 1 is")
		refused(&clusterpb.StacksRequest{Tasks: []string{"worker:2"}}, codes.InvalidArgument, "the cluster has worker:0-1")
		a := c.asks(&clusterpb.StacksRequest{Run: 1})
		a.leave()
		if err := <-a.ended; status.Code(err) != codes.Canceled {
			t.Errorf("a client that leaves: %v", err)
		}
		c.answers("1", c.question("1"), "worker:1", 8) // nobody waits for it
		c.do(func() {
			if r := c.execs.snapshots.Begin([]string{"worker:0"}); r.Number < 2 {
				t.Errorf("round %d", r.Number)
			}
		})
	})
}

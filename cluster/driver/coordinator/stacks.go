package coordinator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/driver/verdict"
)

// How long a round of snapshots may take, and how much of that is left for the agents' answers
// on their way.
const (
	stacksTimeout       = 5 * time.Second
	nativeStacksTimeout = 30 * time.Second
	maxStacksTimeout    = 10 * time.Minute
	stacksTransfer      = time.Second
)

// Stacks implements the Control service.
func (c *control) Stacks(req *clusterpb.StacksRequest, stream grpc.ServerStreamingServer[clusterpb.StacksReply]) error {
	return c.takeSnapshots(stream.Context(), req, stream.Send)
}

// takeSnapshots asks the agents of the requested tasks for snapshots and calls each with the
// answers as they arrive, then with the tasks that did not answer in time. Its errors are of
// gRPC. Call it from any goroutine but the loop's.
func (c *Coordinator) takeSnapshots(ctx context.Context, req *clusterpb.StacksRequest,
	each func(*clusterpb.StacksReply) error,
) error {
	limit := stacksTimeout
	if req.GetNative() {
		limit = nativeStacksTimeout
	}
	if ms := req.GetTimeoutMillis(); ms > 0 {
		limit = min(time.Duration(ms)*time.Millisecond, maxStacksTimeout)
	}
	var run int32
	round, err := ask(ctx, &c.eventLoop, func() (r *verdict.Round, err error) {
		r, run, err = c.askSnapshots(req, limit)
		return r, err
	})
	if err != nil {
		return err
	}
	end := func() {
		c.execs.snapshots.End(round, func(task string) *clusterpb.MissingSnapshot { return c.unanswered(task, limit) })
	}
	defer c.post(end)
	deadline := time.AfterFunc(limit+stacksTransfer, func() { c.post(end) })
	defer deadline.Stop()
	for {
		select {
		case reply, open := <-round.Replies:
			if !open {
				return nil
			}
			reply.Run = run
			if err := each(reply); err != nil {
				return err
			}
		case <-ctx.Done():
			return status.FromContextError(ctx.Err()).Err()
		case <-c.done:
			return status.Error(codes.Unavailable, ErrOver.Error())
		}
	}
}

// askSnapshots opens a round and asks the agents. Loop only.
func (c *Coordinator) askSnapshots(req *clusterpb.StacksRequest, limit time.Duration) (*verdict.Round, int32, error) {
	tasks, err := cluster.SelectTasks(cluster.Tasks(c.cfg.Request.GetRoles()), req.GetTasks())
	if err != nil {
		return nil, 0, status.Error(codes.InvalidArgument, err.Error())
	}
	r := c.lc.Run()
	if r == nil || !c.lc.Active() {
		return nil, 0, status.Error(codes.FailedPrecondition,
			"no run is active: there are no tasks whose stacks could be shown; logs shows what the last run wrote")
	}
	if req.GetRun() != 0 && req.GetRun() != r.Spec.ID {
		return nil, 0, status.Errorf(codes.FailedPrecondition, "run %d is not active, run %d is", req.GetRun(), r.Spec.ID)
	}
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = t.String()
	}
	round := c.execs.snapshots.Begin(names)
	for _, x := range c.lc.Executors() {
		if why := c.unasked(x, r.Spec.ID); why != nil {
			c.execs.snapshots.Missing(why)
			continue
		}
		if round.Waits(x.Task.String()) {
			c.execs.agents[x.ID].send(
				&clusterpb.Instruction{Instruction: &clusterpb.Instruction_TakeSnapshot{TakeSnapshot: &clusterpb.TakeSnapshot{
					Run: r.Spec.ID, Round: round.Number, TimeoutMillis: limit.Milliseconds(), Native: req.GetNative(),
				}}})
		}
	}
	return round, r.Spec.ID, nil
}

// unasked returns why an executor's agent cannot be asked for its task; nil: it can. Loop only.
func (c *Coordinator) unasked(x *lifecycle.Executor, run int32) *clusterpb.MissingSnapshot {
	m := &clusterpb.MissingSnapshot{Task: x.Task.String(), Host: x.Host}
	t := c.lc.OpenTask(run, x.Task)
	switch {
	case x.State == lifecycle.ExecutorLost:
		m.Reason = fmt.Sprintf("executor %s is lost: %s", x.ID, x.Why)
	case c.execs.agents[x.ID] == nil:
		m.Reason = "the connection to its agent is broken: " + cmp.Or(x.Why, "it may connect again")
	case t == nil || t.State == lifecycle.TaskWaiting:
		m.Reason = "its program has not been started yet"
	case t.State >= lifecycle.TaskExited:
		m.Reason = "its program has ended"
	default:
		return nil
	}
	return m
}

// unanswered returns why a task has not answered in time. Loop only.
func (c *Coordinator) unanswered(task string, limit time.Duration) *clusterpb.MissingSnapshot {
	for _, x := range c.lc.Executors() {
		if x.Task.String() != task {
			continue
		}
		m := &clusterpb.MissingSnapshot{
			Task: task, Host: x.Host, Reason: fmt.Sprintf("its agent on %s did not answer within %s", x.Host, limit),
		}
		if silent := c.execs.silence(x.ID, time.Now()); silent > 0 {
			m.Reason = fmt.Sprintf("its agent on %s has sent nothing for %s", x.Host, silent.Round(time.Second))
		}
		return m
	}
	return &clusterpb.MissingSnapshot{Task: task, Reason: "the cluster has no such task"} // unreachable
}

// snapshotTaken passes an agent's answer to its round. Loop only.
func (c *Coordinator) snapshotTaken(id cluster.ExecutorID, a *clusterpb.SnapshotTaken) {
	if err := c.execs.checkTask(id, a.GetSnapshot().GetTask()); err != nil {
		c.log.Warn("a snapshot is ignored; the run goes on", "err", err)
		return
	}
	a.Snapshot.ExecutorId = string(id)
	c.execs.snapshots.Taken(a)
}

// snapshotMissing notes in the open rounds that an executor's agent cannot answer any more. Loop
// only.
func (c *Coordinator) snapshotMissing(id cluster.ExecutorID) {
	if x := c.lc.Executor(id); x != nil {
		c.execs.snapshots.Missing(&clusterpb.MissingSnapshot{
			Task: x.Task.String(), Host: x.Host, Reason: fmt.Sprintf("its agent on %s ended or lost its connection: %s", x.Host,
				cmp.Or(x.Why, "it may connect again")),
		})
	}
}

package coordinator

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/driver/verdict"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// snapshotsApart is the time between the two snapshots of which a verdict is made.
const snapshotsApart = time.Second

// stallCheck is the automatic check of a run: when it makes no progress for too long, the driver looks at its tasks and
// shows one line. It never ends a run. Owned by the loop.
type stallCheck struct {
	monitor verdict.Monitor
	at      time.Time // for which the timer is set; zero: it is not
	looking bool      // snapshots are being taken
}

// stallTimer is the name of the timer of the check.
const stallTimer = "stall"

// active records how far a task's program is. Loop only.
func (c *Coordinator) active(rec *record, id cluster.TaskID, a *clusterpb.Activity) {
	now := time.Now()
	if rec.stall.monitor.Report(id, a, now) {
		c.subs.wake()
	}
	if t := rec.task(id); t.status.GetStep() > 0 && a.GetCounter() != "operations" && a.GetStep() > t.status.GetStep() {
		t.status.Step, t.step = a.GetStep(), now // reports are rarer than steps
	}
	c.watchStall(rec)
}

// inactive records that an attempt of a task has ended. The limit is that of the other tasks from now on, which may be
// lower. An agent that connects again repeats the ends of earlier attempts, too. Loop only.
func (c *Coordinator) inactive(rec *record, id cluster.TaskID, attempt int32) {
	if t := c.lc.OpenTask(rec.status.GetId(), id); t != nil && int(attempt) != t.Attempt {
		return
	}
	rec.stall.monitor.Forget(id)
	c.watchStall(rec)
}

// watchStall sets the timer for the next look at the tasks of a run, unless it is set for an earlier time. Each step
// makes the look later: the timer then finds that it is not due. Loop only.
func (c *Coordinator) watchStall(rec *record) {
	s := &rec.stall
	due, on := s.monitor.Due()
	if !on || s.looking || !s.at.IsZero() && !due.Before(s.at) {
		return
	}
	s.at = due
	c.after(stallTimer, max(time.Until(due), 10*time.Millisecond), func() {
		s.at = time.Time{}
		c.checkStall(rec)
	})
}

// checkStall looks at the tasks if the run has made no progress for too long. Loop only.
func (c *Coordinator) checkStall(rec *record) {
	s := &rec.stall
	if !rec.over.IsZero() || rec != c.runs.current() {
		return
	}
	now := time.Now()
	due, on := s.monitor.Due()
	if r := c.lc.Run(); on && (r == nil || r.Stopping || r.State != lifecycle.RunRunning) {
		s.monitor.Judged(&verdict.Verdict{}, now) // it is being stopped, or its tasks are being started
		on = false
		c.watchStall(rec)
	}
	if !on {
		return
	}
	if now.Before(due) { // there was progress meanwhile
		c.watchStall(rec)
		return
	}
	s.looking = true
	c.work.Go(func() {
		seen, err := c.examine(c.working)
		c.post(func() { c.examined(rec, seen, err) })
	})
}

// examined records the verdict of an automatic look. Loop only.
func (c *Coordinator) examined(rec *record, seen *examination, err error) {
	s := &rec.stall
	s.looking = false
	if !rec.over.IsZero() {
		return
	}
	switch {
	case err != nil:
		c.log.Warn("why tasks make no progress is not known; they are looked at again", "run", rec.status.GetId(), "err", err)
		s.monitor.Judged(&verdict.Verdict{}, time.Now())
	case seen.run.ID != rec.status.GetId() || s.monitor.Since().After(seen.began): // there was progress meanwhile
	case s.monitor.Judged(&seen.verdict, time.Now()):
		c.log.Info("stall", "run", rec.status.GetId(), "verdict", seen.verdict.Text, "shown", s.monitor.Line() != "")
		c.subs.wake()
	}
	c.watchStall(rec)
}

// examination is a look at the tasks of the active run.
type examination struct {
	began   time.Time
	run     verdict.Run
	tasks   []verdict.Task
	verdict verdict.Verdict
}

// examine takes two snapshots of the tasks of the active run, and judges. Its errors are of gRPC. Call it from any
// goroutine but the loop's.
func (c *Coordinator) examine(ctx context.Context) (*examination, error) {
	seen := &examination{began: time.Now()}
	taken := map[string][]*clusterpb.Snapshot{}
	missing := map[string]string{}
	for i := range 2 {
		if err := c.sleep(ctx, time.Until(seen.began.Add(time.Duration(i)*snapshotsApart))); err != nil {
			return nil, err
		}
		err := c.takeSnapshots(ctx, &clusterpb.StacksRequest{}, func(r *clusterpb.StacksReply) error {
			for _, s := range r.GetSnapshots() {
				taken[s.GetTask()] = append(taken[s.GetTask()], s)
			}
			for _, m := range r.GetMissing() {
				missing[m.GetTask()] = m.GetReason()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	run, err := ask(ctx, &c.eventLoop, func() (run verdict.Run, err error) {
		r := c.lc.Run()
		if r == nil || !c.lc.Active() {
			return run, status.Error(codes.FailedPrecondition, "the run has ended meanwhile")
		}
		run, seen.tasks = c.evidence(r, taken, missing)
		return run, nil
	})
	if err != nil {
		return nil, err
	}
	seen.run, seen.verdict = run, verdict.Judge(run, seen.tasks)
	return seen, nil
}

// evidence returns what is known about the active run and its tasks. Loop only.
func (c *Coordinator) evidence(r *lifecycle.Run, taken map[string][]*clusterpb.Snapshot,
	missing map[string]string,
) (verdict.Run, []verdict.Task) {
	rec := c.runs.find(r.Spec.ID)
	now := time.Now()
	run := rec.stall.monitor.Run(r.Spec.ID, now)
	if fed := c.feedableRun(); fed.ID == run.ID && fed.Over == "" {
		run.FeedWaits = c.runs.feeds.AllWait(fed)
	}
	var tasks []verdict.Task
	for _, x := range c.lc.Executors() {
		id := x.Task
		t := c.lc.OpenTask(r.Spec.ID, id)
		if t == nil {
			continue
		}
		v := verdict.Task{
			ID: id, State: t.State.String(), Host: x.Host, Snapshots: taken[id.String()], Missing: missing[id.String()], CPU: -1,
			GPU: -1, Serves: t.JoinedServer,
		}
		v.Step, v.Age = rec.stall.monitor.Step(id, now)
		if t.Stopped && (t.State == lifecycle.TaskRunning || t.State == lifecycle.TaskLaunching) {
			v.State = "stopped"
		}
		if u := rec.task(id); now.Sub(u.used) < c.execs.usual {
			v.CPU = u.status.GetUsage().GetCpuPercent()
		}
		if g := c.execs.gpus[x.ID]; g != nil {
			v.GPU = float64(g.Percent)
		}
		tasks = append(tasks, v)
	}
	slices.SortFunc(tasks, func(a, b verdict.Task) int { return cluster.CompareTasks(a.ID, b.ID) })
	return run, tasks
}

// Why implements the Control service.
func (c *control) Why(ctx context.Context, _ *clusterpb.WhyRequest) (*clusterpb.WhyReply, error) {
	for try := 1; ; try++ {
		over, err := ask(ctx, &c.eventLoop, func() (*clusterpb.WhyReply, error) {
			if c.lc.Active() {
				return nil, nil //nolint:nilnil // it is not over
			}
			var last *clusterpb.RunStatus
			if rec := c.runs.current(); rec != nil {
				last = c.status(rec)
			}
			return results.Why(last), nil
		})
		if err != nil || over != nil {
			return over, err
		}
		seen, err := c.examine(ctx)
		if err == nil {
			return seen.verdict.Reply(seen.run.ID, seen.tasks), nil
		}
		if status.Code(err) != codes.FailedPrecondition || try == 2 { // otherwise the run has ended meanwhile
			return nil, err
		}
	}
}

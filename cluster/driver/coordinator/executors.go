package coordinator

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/driver/panel"
	"github.com/tfcluster/tfcluster/cluster/driver/verdict"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// executors is data about the executors that the lifecycle does not have. Owned by the loop,
// except tasks, samples and generation.
type executors struct {
	tasks  map[cluster.ExecutorID]string // each executor's task, which never changes: read by any goroutine
	agents map[cluster.ExecutorID]*agentConn
	silences
	hellos       map[cluster.ExecutorID]*clusterpb.Hello
	granted      map[cluster.ExecutorID]cluster.Granted
	pendingFiles map[cluster.ExecutorID]pendingFiles // files that executors with disks of their own still have to send
	gpus         map[cluster.ExecutorID]*panel.GPUs  // their use in the last heartbeat
	samples      *panel.Samples                      // used by any goroutine
	snapshots    *verdict.Collector                  // answers of agents to the rounds in which they were asked
	// Of the executors' Pythons: the number of reset --hard; read by any goroutine.
	generation atomic.Int32
}

func newExecutors(roles []*clusterpb.Role, heartbeat time.Duration) executors {
	tasks := map[cluster.ExecutorID]string{}
	for _, e := range cluster.ExecutorRequests(roles) {
		tasks[e.ID] = e.Task.String()
	}
	return executors{
		tasks: tasks,
		silences: silences{
			usual: 3 * heartbeat,
			left:  map[cluster.ExecutorID]time.Time{},
			known: map[cluster.ExecutorID]bool{},
		}, gpus: map[cluster.ExecutorID]*panel.GPUs{}, samples: panel.NewSamples(), snapshots: verdict.NewCollector(),
		agents: map[cluster.ExecutorID]*agentConn{}, hellos: map[cluster.ExecutorID]*clusterpb.Hello{},
		granted: map[cluster.ExecutorID]cluster.Granted{}, pendingFiles: map[cluster.ExecutorID]pendingFiles{},
	}
}

// checkTask refuses what an executor reports about a task of another one.
func (e *executors) checkTask(id cluster.ExecutorID, task string) error {
	if own, ok := e.tasks[id]; !ok || own != task {
		return errtext.Fault("executor %s reported about task %s, but it runs %s", id, task, cmp.Or(own, "none"))
	}
	return nil
}

// expectFiles records at a launch that an executor with its own disk will send files. Loop
// only.
func (e *executors) expectFiles(x *lifecycle.Executor, run, launch int32) {
	if e.hellos[x.ID].GetOwnDisk() {
		e.pendingFiles[x.ID] = pendingFiles{run, x.Attempt, launch}
	}
}

// expectUnsent records that an agent that has joined again, after another driver's death, is still to send files of a
// run. Loop only.
func (e *executors) expectUnsent(exec cluster.ExecutorID, hello *clusterpb.Hello) {
	for _, u := range hello.GetUnsent() {
		if o, known := e.pendingFiles[exec]; !known || u.GetRun() > o.run ||
			u.GetRun() == o.run && u.GetAttempt() > o.launch {
			e.pendingFiles[exec] = pendingFiles{u.GetRun(), int(hello.GetAttempt()), u.GetAttempt()}
		}
	}
}

func (e *executors) releaseBarrier(b *barrier, problem string) {
	for _, conn := range e.agents {
		conn.send(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{
			Barrier: &clusterpb.BarrierReleased{Run: b.run, Name: b.name, Error: problem},
		}})
	}
}

// statuses returns the status of each executor. Loop only.
func (e *executors) statuses(all []*lifecycle.Executor) []*clusterpb.ExecutorStatus {
	var out []*clusterpb.ExecutorStatus
	for _, x := range all {
		s := &clusterpb.ExecutorStatus{
			Id: string(x.ID), Task: x.Task.String(), State: x.State.String(), Host: x.Host, Port: x.Port, Cause: x.Why,
			Attempt: int32(x.Attempt), Pid: int32(e.granted[x.ID].PID),
		}
		if x.State == lifecycle.ExecutorJoined {
			s.State = "warming"
		}
		if h := e.hellos[x.ID]; h != nil && x.State >= lifecycle.ExecutorJoined && x.State != lifecycle.ExecutorLost {
			s.Gpus, s.Python, s.Pid = h.GetGpus(), h.GetPython(), h.GetPid()
			if s.Port == 0 && len(h.GetPorts()) > 0 {
				s.Port = h.GetPorts()[0]
			}
			if d := e.silence(x.ID, time.Now()); d >= shownSilence {
				s.SilentSeconds = d.Seconds()
			}
			if g := e.gpus[x.ID]; g != nil && e.agents[x.ID] != nil {
				s.GpuPercent, s.GpuUsedBytes = g.Percent, g.Bytes
			}
		}
		out = append(out, s)
	}
	return out
}

// stoppedLimit is how long tasks wait in a collective call for one whose process is stopped, without --step-timeout.
const stoppedLimit = 30 * time.Second

// heartbeat records what an executor's task and GPUs use. Loop only.
func (c *Coordinator) heartbeat(id cluster.ExecutorID, h *clusterpb.Heartbeat) {
	c.execs.gpus[id] = panel.SumGPUs(h.GetGpus())
	if c.lc.Run() == nil {
		return
	}
	rec := c.runs.find(c.lc.Run().Spec.ID)
	stopped := map[cluster.TaskID]bool{}
	now := time.Now()
	for _, u := range h.GetUsage() {
		t, err := cluster.ParseTask(u.GetTask())
		if err == nil {
			err = c.execs.checkTask(id, u.GetTask())
		}
		if err != nil {
			c.log.Debug("a task's usage is ignored", "err", err)
			continue
		}
		c.execs.gpus[id].AddTo(u)
		rec.usage(t, u)
		if u.GetState() != "Z" { // its process has ended
			c.execs.samples.Add(u, now)
		}
		stopped[t] = u.GetState() == "T"
		c.runs.groups.SetStopped(rec.status.GetId(), u.GetTask(), stopped[t],
			cmp.Or(c.lc.Run().Spec.Options.StepTimeout(), stoppedLimit))
	}
	c.handle(lifecycle.UsageReported{Exec: id, Stopped: stopped})
}

// Samples implements the Control service. It does not use the loop: the samples of all tasks are many.
func (c *control) Samples(_ context.Context, req *clusterpb.SamplesRequest) (*clusterpb.SamplesReply, error) {
	known := false
	r := &clusterpb.SamplesReply{}
	for _, e := range cluster.ExecutorRequests(c.cfg.Request.GetRoles()) {
		if task := e.Task.String(); req.GetTask() == "" || req.GetTask() == task {
			known = true
			if s := c.execs.samples.Since(task, req.GetAfterUnixMillis(), time.Now()); s != nil {
				r.Tasks = append(r.Tasks, s)
			}
		}
	}
	if !known && req.GetTask() != "" {
		return nil, status.Errorf(codes.NotFound, "cluster %s has no task %s: status lists its tasks", c.cfg.Name,
			req.GetTask())
	}
	return r, nil
}

package coordinator

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results"
)

// record is the state of a run to show: its tasks and its metrics by step. Owned by the
// coordinator's loop.
type record struct {
	status    *clusterpb.RunStatus
	began     time.Time
	over      time.Time // zero until its outcome is known
	entered   bool
	gone      bool // all its processes have ended
	loaded    bool // it has only what is on disk: read from there, or reduced by forgetEnded; its status does not change
	written   bool // on disk
	shown     shown
	tasks     map[cluster.TaskID]*taskRecord
	outputs   outputs
	values    values
	manifests manifests
	lead      string // the task whose steps are the run's
	stall     stallCheck
	// unwritten are reported metrics that are not in an event file yet.
	unwritten []Scalar
}

// shown is how much of a run's output cells have shown; notes are counted by notes.total.
type shown struct {
	lines        int64
	notesAtStart int
	notesShown   int // when a cell last showed them
	notesAtEnd   int
}

// speed is the step and time of the last measurement of a task's rate.
type speed struct {
	at   time.Time
	step int64
}

type taskRecord struct {
	status *clusterpb.TaskStatus
	speed  speed
	step   time.Time // of the last step
	used   time.Time // of the last heartbeat with its usage
}

// usageSpan is the minimum time between two heartbeats to compute a share of CPU.
const usageSpan = 100 * time.Millisecond

func newRecord(st *clusterpb.RunStatus) *record {
	return &record{status: st, began: time.Now(), tasks: map[cluster.TaskID]*taskRecord{}}
}

func (r *record) task(id cluster.TaskID) *taskRecord {
	t := r.tasks[id]
	if t == nil {
		t = &taskRecord{status: &clusterpb.TaskStatus{Task: id.String()}}
		r.tasks[id] = t
	}
	return t
}

// started resets a task's status at its launch.
func (r *record) started(id cluster.TaskID, x *lifecycle.Executor) {
	r.stall.monitor.Forget(id)
	old := r.task(id)
	r.tasks[id] = &taskRecord{status: &clusterpb.TaskStatus{
		Task: id.String(), Host: x.Host, ExecutorId: string(x.ID), Restarts: old.status.GetRestarts(),
		Step: old.status.GetStep(),
	}}
}

// seriesPoints is the maximum number of points of a metric; beyond it every second point is
// removed.
const seriesPoints = 400

// report adds a task's report to the record and returns whether its step has changed.
func (r *record) report(id cluster.TaskID, rep *clusterpb.Report) bool {
	t := r.task(id)
	now := time.Now()
	moved := rep.GetStep() != t.status.GetStep() || t.step.IsZero()
	if moved {
		t.status.Step, t.step = rep.GetStep(), now
	}
	t.rate(rep.GetStep(), now)
	if loss, ok := rep.GetMetrics()["loss"]; ok && clusterpb.IsFinite(loss) {
		t.status.Loss = &loss
	}
	r.chooseLead(id)
	leads := r.lead == id.String()
	p := cmp.Or(r.status.GetProgress(), &clusterpb.Report{Metrics: map[string]float64{}})
	r.status.Progress = p
	prefix := ""
	if id.Role == cluster.Evaluator {
		prefix = "evaluator/"
	}
	if !leads && prefix == "" {
		return moved
	}
	for name, v := range rep.GetMetrics() {
		p.Metrics[prefix+name] = v
		if !clusterpb.IsFinite(v) {
			continue
		}
		if !r.reports(prefix + name) {
			r.single(prefix + name)
		}
		r.point(prefix+name, id.String(), rep.GetStep(), v)
		if len(r.unwritten) < maxUnwritten {
			r.unwritten = append(r.unwritten, Scalar{
				Tag: prefix + name, Step: rep.GetStep(), Value: v, WallTime: cmp.Or(rep.GetWallTime(), float64(now.UnixNano())/1e9),
			})
		}
	}
	if !leads {
		return moved
	}
	p.Step, p.WallTime, p.Source = rep.GetStep(), rep.GetWallTime(), rep.GetSource()
	if rep.GetTotalSteps() > 0 {
		p.TotalSteps = rep.GetTotalSteps()
	}
	if rep.GetEpoch() > 0 {
		p.Epoch = rep.GetEpoch()
	}
	if rep.GetTotalEpochs() > 0 {
		p.TotalEpochs = rep.GetTotalEpochs()
	}
	r.status.StepsPerSecond = t.status.GetStepsPerSecond()
	return moved
}

// chooseLead sets the task whose steps are the run's: the chief, or the lowest worker that
// reports.
func (r *record) chooseLead(id cluster.TaskID) {
	if id.Role != cluster.Chief && id.Role != cluster.Worker {
		return
	}
	have, err := cluster.ParseTask(r.lead)
	if r.lead == "" || err != nil || cluster.CompareTasks(id, have) < 0 {
		r.lead = id.String()
	}
}

// rate measures a task's steps per second, a second or more at a time.
func (t *taskRecord) rate(step int64, now time.Time) {
	if t.speed.at.IsZero() || step < t.speed.step {
		t.speed = speed{now, step}
		return
	}
	if d := now.Sub(t.speed.at); d >= time.Second {
		rate := float64(step-t.speed.step) / d.Seconds()
		if old := t.status.GetStepsPerSecond(); old > 0 {
			rate = 0.5*old + 0.5*rate
		}
		t.status.StepsPerSecond = rate
		t.speed = speed{now, step}
	}
}

func (r *record) point(name, task string, step int64, v float64) {
	i := slices.IndexFunc(r.status.Series, func(s *clusterpb.Series) bool { return s.GetName() == name })
	if i < 0 {
		r.status.Series = append(r.status.Series, &clusterpb.Series{Name: name, Task: task})
		i = len(r.status.Series) - 1
	}
	s := r.status.Series[i]
	if n := len(s.Steps); n > 0 && s.Steps[n-1] == step {
		s.Values[n-1] = v
		return
	}
	s.Steps, s.Values = append(s.Steps, step), append(s.Values, v)
	if len(s.Steps) > seriesPoints {
		k := 0
		for j := 0; j < len(s.Steps); j += 2 {
			s.Steps[k], s.Values[k] = s.Steps[j], s.Values[j]
			k++
		}
		s.Steps, s.Values = s.Steps[:k], s.Values[:k]
	}
}

// usage adds a heartbeat's usage to a task.
func (r *record) usage(id cluster.TaskID, u *clusterpb.TaskUsage) {
	t := r.task(id)
	now, before := time.Now(), t.status.GetUsage()
	usage := cmp.Or(proto.CloneOf(u.GetUsage()), &clusterpb.Usage{})
	usage.CpuPercent = before.GetCpuPercent()
	if d := now.Sub(t.used); !t.used.IsZero() && d >= usageSpan && u.GetPid() == t.status.GetPid() {
		usage.CpuPercent = 100 * max(0, usage.GetCpuSeconds()-before.GetCpuSeconds()) / d.Seconds()
	}
	t.used, t.status.Usage = now, usage
	if u.GetPid() != 0 {
		t.status.Pid = u.GetPid()
	}
}

// fill updates the record's status from the lifecycle. Loop only.
func (c *Coordinator) fill(r *record, lr *lifecycle.Run) {
	if r.loaded {
		return
	}
	st := r.status
	st.Lines = c.store.Lines(st.GetId())
	if r.over.IsZero() {
		st.Seconds = time.Since(r.began).Seconds()
	} else {
		st.Seconds = r.over.Sub(r.began).Seconds()
	}
	if lr == nil || lr.Spec.ID != st.GetId() {
		return
	}
	st.State = lr.State.String()
	if lr.Stopping && lr.State.Open() {
		st.State = "stopping"
	}
	st.Restarts, st.MaxRestarts, st.Losses = int32(lr.Restarts), lr.Spec.Options.GetMaxRestarts(), int32(lr.Losses)
	if !lr.State.Open() {
		st.Failure = lr.Failure
		if st.Failure != nil {
			st.Failure.Echoes = nil
		}
	}
	st.Tasks = nil
	own := r.stall.monitor.Own()
	for _, t := range slices.SortedFunc(slices.Values(lr.Tasks),
		func(a, b *lifecycle.Task) int { return cluster.CompareTasks(a.ID, b.ID) }) {
		tr := r.task(t.ID)
		ts := proto.CloneOf(tr.status)
		ts.State, ts.Echo, ts.Restarts = t.State.String(), t.Echo, int32(t.Restarts)
		if t.Stopped && (t.State == lifecycle.TaskRunning || t.State == lifecycle.TaskLaunching) {
			ts.State = "stopped"
		}
		if t.State == lifecycle.TaskWaiting && t.Awaits != "" {
			ts.Reason = "for " + t.Awaits
		}
		if t.Exit != nil {
			ts.ExitCode, ts.Signal, ts.Reason = t.Exit.GetCode(), t.Exit.GetSignal(), t.Exit.GetReason()
		}
		ts.OwnStepSeconds, ts.Slowdown = own[t.ID].Seconds, own[t.ID].Slowdown
		if !tr.step.IsZero() {
			ts.StepAgeSeconds = time.Since(tr.step).Seconds()
		}
		if t.Echo && st.Failure != nil {
			st.Failure.Echoes = append(st.Failure.Echoes, t.ID.String())
		}
		st.Tasks = append(st.Tasks, ts)
	}
}

// status returns a copy of a record's current status, with results as reprs only, because
// values may be many megabytes. Loop only.
func (c *Coordinator) status(rec *record) *clusterpb.RunStatus {
	c.fill(rec, c.lc.Run())
	rec.status.Detached = c.clients.detached && rec.over.IsZero()
	result, byTask := rec.status.Result, rec.status.Results
	rec.status.Result, rec.status.Results = nil, nil // do not clone the values
	st := proto.CloneOf(rec.status)
	rec.status.Result, rec.status.Results = result, byTask
	st.Result, st.Results = result, byTask
	if rec.over.IsZero() {
		st.Stall = rec.stall.monitor.Line()
		st.Waiting = c.lc.RunAwaits()
		if run := c.feedableRun(); run.ID == st.GetId() && run.Over == "" && c.runs.feeds.AllWait(run) {
			st.WantsData = true
		}
	}
	results.KeepReprs(st)
	return st
}

// statusWithValues is status with the values of results, which are shared with the record and
// not changed. For a run that an earlier driver recorded it has reprs; readValues adds the
// values. Loop only.
func (c *Coordinator) statusWithValues(rec *record) *clusterpb.RunStatus {
	st := c.status(rec)
	st.Result, st.Results = rec.status.GetResult(), maps.Clone(rec.status.GetResults())
	return st
}

// readValues adds the values of results from the run's record on disk. On errors the reprs
// remain.
func (c *Coordinator) readValues(st *clusterpb.RunStatus) {
	read, err := results.ReadRun(c.files.folder(), st.GetId())
	if err != nil {
		c.log.Warn("what the tasks returned is shown as text only", "run", st.GetId(), "err", err)
		return
	}
	if read.GetResult() != nil || len(read.GetResults()) > 0 {
		st.Result, st.Results = read.GetResult(), read.GetResults()
	}
}

package lifecycle

import "github.com/tfcluster/tfcluster/cluster"

// The cost of an event does not depend on the number of executors: executors and tasks are
// looked up by name, and the states that something waits for are counted as they change.
// TestLifecycle checks the counts after each event.

// execCounts counts executors by the conditions that something waits for.
type execCounts struct {
	unready    int // not ready
	busy       int // hold a process of a run
	skipped    int // left out of the attempt
	unprepared int // have not answered the attempt's Prepare
}

// taskCounts counts the tasks of one role by state.
type taskCounts struct {
	total                       int
	waiting, launching, running int
	joined                      int    // how many of those are in tf.distribute.Server.join()
	awaits                      string // the role that the waiting tasks wait for; "" if they can be launched
	overdue                     bool   // the time limit after the end of training has passed
}

// alive counts the tasks that run or are still to be launched.
func (n *taskCounts) alive() int { return n.waiting + n.launching + n.running }

// of returns the counter of a state, or nil if the state is not counted.
func (n *taskCounts) of(s TaskState) *int {
	switch s {
	case TaskWaiting:
		return &n.waiting
	case TaskLaunching:
		return &n.launching
	case TaskRunning:
		return &n.running
	}
	return nil
}

// add adds by, 1 or -1, to the counts that apply to a task.
func (n *taskCounts) add(t *Task, by int) {
	if in := n.of(t.State); in != nil {
		*in += by
		if t.JoinedServer {
			n.joined += by
		}
	}
}

// Executor returns the executor with the given ID, or nil.
func (l *Machine) Executor(id cluster.ExecutorID) *Executor { return l.byID[id] }

// recount updates the count of a condition that changes for one executor.
func recount(n *int, was, is bool) {
	if was {
		*n--
	}
	if is {
		*n++
	}
}

// setState changes the state of an executor and the counts.
func (l *Machine) setState(x *Executor, s ExecutorState) {
	recount(&l.count.unready, x.State != ExecutorReady, s != ExecutorReady)
	x.State = s
}

// setBusy records whether an executor holds a process of a run.
func (l *Machine) setBusy(x *Executor, busy bool) {
	recount(&l.count.busy, x.Busy, busy)
	x.Busy = busy
}

// setSkipped records whether the attempt continues without an executor.
func (l *Machine) setSkipped(x *Executor, skipped bool) {
	recount(&l.count.skipped, x.inRun.skipped, skipped)
	x.inRun.skipped = skipped
}

// index builds the executors' index and counts. New calls it once.
func (l *Machine) index() {
	l.byID = make(map[cluster.ExecutorID]*Executor, len(l.execs))
	for _, x := range l.execs {
		l.byID[x.ID] = x
		if x.State != ExecutorReady {
			l.count.unready++
		}
	}
}

// task returns the task with the given ID, or nil.
func (r *Run) task(id cluster.TaskID) *Task { return r.byID[id] }

// index builds the tasks' index and counts at the beginning of an attempt.
func (r *Run) index() {
	r.byID, r.count = make(map[cluster.TaskID]*Task, len(r.Tasks)), map[string]*taskCounts{}
	for _, t := range r.Tasks {
		r.byID[t.ID] = t
		n := r.count[t.ID.Role]
		if n == nil {
			n = &taskCounts{}
			r.count[t.ID.Role] = n
		}
		n.total++
		n.add(t, 1)
	}
}

// setTask changes a task and updates the counts of its role.
func (r *Run) setTask(t *Task, change func()) {
	n := r.count[t.ID.Role]
	n.add(t, -1)
	change()
	n.add(t, 1)
}

// serving counts the tasks of a role for which Machine.serves is true.
func (r *Run) serving(role string) int {
	if chief := r.task(cluster.TaskID{Role: cluster.Chief}); role != cluster.Worker || chief == nil || chief.alive() {
		return 0
	}
	return r.count[role].joined
}

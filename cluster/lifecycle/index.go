package lifecycle

import "github.com/tfcluster/tfcluster/cluster"

// An event costs the same however many executors there are: they and tasks are found by
// their names, and what is waited for is counted as it changes. TestLifecycle compares
// the counts with what they count after each event.

// execCounts counts the executors in the states that something waits for the end of.
type execCounts struct {
	unready    int // are not ready
	busy       int // hold a process of a run
	left       int // are not waited for
	unprepared int // have yet to answer the attempt's Prepare
}

// taskCounts counts the tasks of one role by state.
type taskCounts struct {
	total                       int
	waiting, launching, running int
	joined                      int    // of those three: in tf.distribute.Server.join()
	awaits                      string // the role that those in waiting wait for; "": it is their turn
	overdue                     bool   // the while that the role had behind the training's end is over
}

// alive counts the tasks that are launched, or still to be.
func (n *taskCounts) alive() int { return n.waiting + n.launching + n.running }

// of is where a state is counted; nil: nowhere.
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

// add counts a task in, or with by -1 out.
func (n *taskCounts) add(t *Task, by int) {
	if in := n.of(t.State); in != nil {
		*in += by
		if t.joinedServer {
			n.joined += by
		}
	}
}

// Executor returns the executor with an id; nil if there is none.
func (l *Machine) Executor(id cluster.ExecutorID) *Executor { return l.byID[id] }

// setState gives an executor another state.
func (l *Machine) setState(x *Executor, s ExecutorState) {
	if x.State != ExecutorReady {
		l.count.unready--
	}
	x.State = s
	if x.State != ExecutorReady {
		l.count.unready++
	}
}

// setBusy notes whether an executor holds a process of a run.
func (l *Machine) setBusy(x *Executor, busy bool) {
	if x.Busy {
		l.count.busy--
	}
	x.Busy = busy
	if x.Busy {
		l.count.busy++
	}
}

// setLeft notes whether the attempt goes on without an executor.
func (l *Machine) setLeft(x *Executor, left bool) {
	if x.inRun.left {
		l.count.left--
	}
	x.inRun.left = left
	if x.inRun.left {
		l.count.left++
	}
}

// index finds executors by name, and counts them, at the cluster's beginning.
func (l *Machine) index() {
	l.byID = make(map[cluster.ExecutorID]*Executor, len(l.execs))
	for _, x := range l.execs {
		l.byID[x.ID] = x
		if x.State != ExecutorReady {
			l.count.unready++
		}
	}
}

// task is the run's task of that name; nil where there is none.
func (r *Run) task(id cluster.TaskID) *Task { return r.byID[id] }

// index finds tasks by name, and counts them, at the beginning of an attempt.
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

// setTask changes a task so that its role's counts stay right.
func (r *Run) setTask(t *Task, change func()) {
	n := r.count[t.ID.Role]
	n.add(t, -1)
	change()
	n.add(t, 1)
}

// serving counts the tasks of a role that serves says of that they do.
func (r *Run) serving(role string) int {
	if chief := r.task(cluster.TaskID{Role: cluster.Chief}); role != cluster.Worker || chief == nil || chief.alive() {
		return 0
	}
	return r.count[role].joined
}

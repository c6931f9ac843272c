package cluster

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
func (n *taskCounts) of(s taskState) *int {
	switch s {
	case taskWaiting:
		return &n.waiting
	case taskLaunching:
		return &n.launching
	case taskRunning:
		return &n.running
	}
	return nil
}

// add counts a task in, or with by -1 out.
func (n *taskCounts) add(t *task, by int) {
	if in := n.of(t.state); in != nil {
		*in += by
		if t.joinedServer {
			n.joined += by
		}
	}
}

func (l *lifecycle) exec(id ExecutorID) *executor { return l.byID[id] }

// setState gives an executor another state.
func (l *lifecycle) setState(x *executor, s execState) {
	if x.state != execReady {
		l.count.unready--
	}
	x.state = s
	if x.state != execReady {
		l.count.unready++
	}
}

// setBusy notes whether an executor holds a process of a run.
func (l *lifecycle) setBusy(x *executor, busy bool) {
	if x.busy {
		l.count.busy--
	}
	x.busy = busy
	if x.busy {
		l.count.busy++
	}
}

// setLeft notes whether the attempt goes on without an executor.
func (l *lifecycle) setLeft(x *executor, left bool) {
	if x.left {
		l.count.left--
	}
	x.left = left
	if x.left {
		l.count.left++
	}
}

// index finds executors by name, and counts them, at the cluster's beginning.
func (l *lifecycle) index() {
	l.byID = make(map[ExecutorID]*executor, len(l.execs))
	for _, x := range l.execs {
		l.byID[x.id] = x
		if x.state != execReady {
			l.count.unready++
		}
	}
}

// task is the run's task of that name; nil where there is none.
func (r *run) task(id TaskID) *task { return r.byID[id] }

// index finds tasks by name, and counts them, at the beginning of an attempt.
func (r *run) index() {
	r.byID, r.count = make(map[TaskID]*task, len(r.tasks)), map[string]*taskCounts{}
	for _, t := range r.tasks {
		r.byID[t.id] = t
		n := r.count[t.id.Role]
		if n == nil {
			n = &taskCounts{}
			r.count[t.id.Role] = n
		}
		n.total++
		n.add(t, 1)
	}
}

// setTask changes a task so that its role's counts stay right.
func (r *run) setTask(t *task, change func()) {
	n := r.count[t.id.Role]
	n.add(t, -1)
	change()
	n.add(t, 1)
}

// serving counts the tasks of a role that serves says of that they do.
func (r *run) serving(role string) int {
	if chief := r.task(TaskID{Role: Chief}); role != Worker || chief == nil || chief.alive() {
		return 0
	}
	return r.count[role].joined
}

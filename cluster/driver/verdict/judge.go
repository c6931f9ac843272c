package verdict

import (
	"math"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// evidence is what the findings of the tasks that train say together.
type evidence struct {
	run   Run
	tasks []Task
	found []Finding

	waiting   []int // tasks that wait for others in a collective operation; indexes of tasks
	blocked   []int // tasks that wait for something of their own
	computing []int
	unknown   []int
	ended     []int // tasks whose program has ended
	serves    bool  // a task that serves others computes
}

// Judge returns which tasks hold the run up. tasks are in the order in which they are shown.
func Judge(run Run, tasks []Task) Verdict {
	e := &evidence{run: run, tasks: tasks}
	r := reader{}
	for i := range tasks {
		e.found = append(e.found, r.classify(&tasks[i]))
	}
	e.sort()
	v := e.verdict()
	v.Findings = e.found
	v.Stuck = !v.Moves && !e.serves && !e.onGPU() && len(e.computing) == 0 && len(e.waiting)+len(e.blocked) > 0 &&
		e.stays(slices.Concat(e.waiting, e.blocked))
	v.Phase = e.phase(v.Culprits)
	v.Computing = len(v.Culprits) > 0 && !slices.ContainsFunc(e.indexes(v.Culprits), func(i int) bool {
		return e.found[i].Class != Computing || e.found[i].Detail != ""
	})
	return v
}

// onGPU returns whether a task may compute on its GPU: its stack shows native code, and its GPU is used. A collective
// operation of NCCL uses it, too.
func (e *evidence) onGPU() bool {
	return len(e.with(e.waiting, func(i int) bool { return !e.found[i].firm && e.tasks[i].GPU >= busyGPU })) > 0
}

// busyGPU is the use of a GPU, in percent, from which on something runs on it.
const busyGPU = 5

// sort divides the tasks that train by what they are doing.
func (e *evidence) sort() {
	var native []int
	for i := range e.tasks {
		f := &e.found[i]
		switch {
		case f.Class == Stopped:
			e.blocked = append(e.blocked, i)
		case e.tasks[i].Serves:
			e.serves = e.serves || f.CPU >= busy
		case !e.tasks[i].trains():
		case e.tasks[i].over():
			e.ended = append(e.ended, i)
		case f.Class == Collective:
			e.waiting = append(e.waiting, i)
		case f.native && f.Class == Lock:
			native = append(native, i)
		case f.Class == Computing:
			e.computing = append(e.computing, i)
		case f.Class == Unknown && !f.firm:
			e.unknown = append(e.unknown, i)
		default:
			e.blocked = append(e.blocked, i)
		}
	}
	// The stack of a task in compiled code, such as JAX's, ends in the program. It waits for the others if one of them is
	// elsewhere; if none is, its stack does not show what it waits for.
	switch {
	case len(native) == 0:
	case len(e.blocked)+len(e.computing)+len(e.ended)+len(e.waiting) > 0 || len(native) > 1:
		for _, i := range native {
			e.found[i].Class, e.found[i].Detail = Collective, ""
		}
		e.waiting = append(e.waiting, native...)
		slices.Sort(e.waiting)
	default:
		e.blocked = append(e.blocked, native...)
	}
}

// verdict decides. Its cases are in the order of their weight.
func (e *evidence) verdict() Verdict {
	switch {
	case e.run.FeedWaits:
		return Verdict{Moves: true, Text: "the run waits for data: %tfcluster train DATA feeds it"}
	case e.moves():
		return Verdict{Moves: true, Text: e.movingText()}
	}
	if stopped := e.with(e.blocked, func(i int) bool { return e.found[i].Class == Stopped }); len(stopped) > 0 {
		return e.culprits(stopped, true)
	}
	own := slices.Concat(e.blocked, e.computing)
	switch {
	case len(own) > 0 && len(e.with(own, func(i int) bool { return e.found[i].feed })) == len(own):
		return Verdict{
			Moves: true, Text: e.names(own) + " " + verb(own, "waits", "wait") + " for records: the feed delivers none",
		}
	case len(e.waiting) > 0 && len(own) > 0:
		return e.heldUp()
	case len(e.waiting) > 0 && len(e.ended) > 0:
		return e.culprits(e.ended, len(e.unknown) == 0 && e.firm(e.waiting) && e.stays(e.waiting))
	case len(e.waiting) > 0 && len(e.unknown) > 0:
		return e.culprits(e.unknown, false)
	case len(e.waiting) > 1:
		return e.allWait()
	case len(e.blocked) > 0:
		return e.culprits(e.blocked, len(e.unknown) == 0 && len(e.waiting) == 0 && e.firm(e.blocked) && e.stays(e.blocked))
	case len(e.computing) == 1 && e.run.Silence >= 0 && len(e.unknown)+len(e.waiting) == 0:
		return e.culprits(e.computing, false)
	}
	return Verdict{Text: e.unsureText()}
}

// heldUp decides where some tasks wait for others, and others do not.
func (e *evidence) heldUp() Verdict {
	own := e.blocked
	if len(own) == 0 {
		own = e.computing
	}
	certain := len(e.unknown) == 0 && e.firm(own) && e.stays(own) && e.stays(e.waiting)
	if len(e.blocked) > 0 && len(e.computing) > 0 { // those that compute may arrive late, too
		if last := e.last(slices.Concat(e.blocked, e.computing)); len(last) > 0 {
			own = last
		}
		certain = false
	}
	v := e.culprits(own, certain)
	if least := e.leastStep(e.waiting); least >= 0 && least < e.leastStep(own) {
		v.Certain, v.Text = false, e.disagreeText(own, e.with(e.waiting, func(i int) bool { return e.step(i) == least }))
	}
	return v
}

// allWait decides where every task waits in a collective operation.
func (e *evidence) allWait() Verdict {
	certain := len(e.unknown) == 0 && e.firm(e.waiting) && e.stays(e.waiting)
	if apart := e.otherOperation(); len(apart) > 0 {
		v := e.culprits(apart, certain)
		v.Text = e.differentText(apart)
		if !certain {
			v.Text = notSure + v.Text
		}
		return v
	}
	for _, apart := range [][]int{
		e.minority(e.waiting, func(i int) string { return e.found[i].Where }),
		e.last(e.waiting),
		e.idleGPUs(),
	} {
		if len(apart) > 0 && len(apart) < len(e.waiting) {
			v := e.culprits(apart, false)
			v.Guess, v.Text = true, e.perhapsText(apart)
			return v
		}
	}
	return Verdict{Text: e.unsureText()}
}

// otherOperation returns the tasks that wait in another operation than most. In native code the operation is not known,
// but it is no barrier: the others have left the training.
func (e *evidence) otherOperation() []int {
	operation := func(i int) string { return e.found[i].Operation }
	apart := e.minority(e.waiting, operation)
	if e.firm(e.waiting) {
		return apart
	}
	atBarrier := e.with(e.waiting, func(i int) bool { return operation(i) == barrier })
	if len(atBarrier) > 0 && len(apart) == len(e.waiting) {
		return atBarrier
	}
	if len(apart) == len(e.waiting) || len(e.with(apart, func(i int) bool { return operation(i) == "" })) > 0 {
		return nil
	}
	return apart
}

// culprits returns the verdict that these tasks hold the others up.
func (e *evidence) culprits(of []int, certain bool) Verdict {
	v := Verdict{Certain: certain, Held: len(e.waiting) > 0, Text: e.text(of)}
	for _, i := range of {
		v.Culprits = append(v.Culprits, e.tasks[i].ID)
	}
	if !certain {
		v.Text = notSure + v.Text
	}
	return v
}

// moves returns whether steps go on. Without steps, a task that is elsewhere in the second snapshot moves.
func (e *evidence) moves() bool {
	if e.run.Silence >= 0 {
		return e.run.Silence < max(2*time.Second, 3*e.run.Median)
	}
	all := slices.Concat(e.waiting, e.blocked, e.computing)
	return len(e.blocked) == 0 && len(all) > 0 && !e.stays(all)
}

// stays returns whether tasks are at the same place in all their snapshots.
func (e *evidence) stays(of []int) bool {
	return !slices.ContainsFunc(of, func(i int) bool { return !e.found[i].fixed })
}

// firm returns whether the classes of tasks follow from frames and states.
func (e *evidence) firm(of []int) bool {
	return !slices.ContainsFunc(of, func(i int) bool { return !e.found[i].firm })
}

func (e *evidence) with(of []int, has func(int) bool) []int {
	return slices.DeleteFunc(slices.Clone(of), func(i int) bool { return !has(i) })
}

// step returns the last step of a task; -1: none is known.
func (e *evidence) step(i int) int64 {
	if e.tasks[i].Age < 0 {
		return -1
	}
	return e.tasks[i].Step
}

// leastStep returns the lowest step of tasks; -1: none is known.
func (e *evidence) leastStep(of []int) int64 {
	least := int64(math.MaxInt64)
	for _, i := range of {
		least = min(least, e.step(i))
	}
	return least
}

// last returns the tasks with the lowest step, if the steps of all are known and differ.
func (e *evidence) last(of []int) []int {
	least := e.leastStep(of)
	if least < 0 {
		return nil
	}
	last := e.with(of, func(i int) bool { return e.step(i) == least })
	if len(last) == len(of) {
		return nil
	}
	return last
}

// minority returns the tasks whose key fewer tasks have than another one; those of all groups if there are several
// and none is the largest. It returns nothing if all have the same.
func (e *evidence) minority(of []int, key func(int) string) []int {
	count := map[string]int{}
	for _, i := range of {
		count[key(i)]++
	}
	if len(count) < 2 {
		return nil
	}
	most, largest := 0, 0 // how many groups are of the largest size
	for _, n := range count {
		switch {
		case n > most:
			most, largest = n, 1
		case n == most:
			largest++
		}
	}
	if largest > 1 {
		return of
	}
	return e.with(of, func(i int) bool { return count[key(i)] < most })
}

// idleGPUs returns the tasks whose GPUs are idle while those of the others wait at full use, as NCCL does.
func (e *evidence) idleGPUs() []int {
	quiet := e.with(e.waiting, func(i int) bool { return e.tasks[i].GPU >= 0 && e.tasks[i].GPU < busyGPU })
	if full := e.with(e.waiting, func(i int) bool { return e.tasks[i].GPU > 90 }); len(full)+len(quiet) < len(e.waiting) {
		return nil
	}
	return quiet
}

// indexes returns the indexes of tasks.
func (e *evidence) indexes(of []cluster.TaskID) []int {
	var found []int
	for i := range e.tasks {
		if slices.Contains(of, e.tasks[i].ID) {
			found = append(found, i)
		}
	}
	return found
}

// phase returns the phase that the stacks of the culprits, or else of any task, show.
func (e *evidence) phase(culprits []cluster.TaskID) Phase {
	for i := range e.found {
		if p := e.found[i].Phase; p != NoPhase && (len(culprits) == 0 || slices.Contains(culprits, e.tasks[i].ID)) {
			return p
		}
	}
	return NoPhase
}

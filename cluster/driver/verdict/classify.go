package verdict

import (
	"cmp"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Use of the CPU in percent of a core: a task above busy computes, one below idle waits.
const (
	busy = 50
	idle = 20
)

// stack is what one thread of a task is doing.
type stack struct {
	class    Class
	where    string
	function string // of where
	detail   string
	name     string // of the collective operation
	phase    Phase
	native   bool // in native code of a framework: by the CPU, it computes or waits for other tasks
	bare     bool // in native code that the program itself has called, or a lock: the stack does not show which
	waits    wait
	program  bool // it has frames of the program
	loads    bool // a function's name says that it loads something
	thread   bool // it waits for a lock or thread: what the other threads do matters more
	feed     bool // it waits for records of the feed
	traces   bool // a framework traces or compiles the program
}

// reader reads stacks. It knows the frames that it has seen: those of thousands of tasks are mostly the same.
type reader map[frameKey]frameMeaning

type frameKey struct{ file, function string }

type frameMeaning struct {
	program bool
	marker  *marker
}

// frame returns what a frame means.
func (r reader) frame(f *clusterpb.Frame) frameMeaning {
	key := frameKey{f.GetFile(), f.GetFunction()}
	m, known := r[key]
	if !known {
		if m.program = !f.Library(); !m.program {
			m.marker = markerOf(f)
		}
		r[key] = m
	}
	return m
}

// stack reads a thread's stack.
func (r reader) stack(t *clusterpb.ThreadStack) stack {
	s := stack{waits: waitOf(t)}
	s.class, s.detail = s.waits.class(), s.waits.detail()
	var outer []*marker // of frames around the innermost frame of the program
	var inner []*marker
	for _, f := range t.GetFrames() {
		s.loads = s.loads || loading().MatchString(base(f.GetFunction()))
		known := r.frame(f)
		if known.program {
			if !s.program {
				s.program, s.where, s.function = true, place(f), f.GetFile()+" "+f.GetFunction()
			}
			if p := phaseOf(f.GetFunction()); p == Exporting || s.phase == NoPhase {
				s.phase = p
			}
			continue
		}
		switch {
		case known.marker == nil:
		case s.program:
			outer = append(outer, known.marker)
		default:
			inner = append(inner, known.marker)
		}
	}
	s.apply(inner, outer)
	if s.program && len(inner) == 0 && s.waits == waitLock && ofCode(t.GetFrames()[0].GetCode()) != waitLock {
		s.bare = true
	}
	return s
}

// apply takes what the library's frames say: inner ones are called by the program, outer ones call it.
func (s *stack) apply(inner, outer []*marker) {
	find := func(in []*marker, what meaning) *marker {
		i := slices.IndexFunc(in, func(m *marker) bool { return m.meaning == what })
		if i < 0 {
			return nil
		}
		return in[i]
	}
	all := slices.Concat(inner, outer)
	switch {
	case find(all, meansExporting) != nil || s.phase == Exporting:
		s.phase = Exporting
	case find(all, meansSaving) != nil:
		s.phase = Saving
	case s.phase == NoPhase && find(all, meansValidation) != nil:
		s.phase = Validation
	}
	if len(inner) > 0 && s.waits != waitGC {
		switch first := inner[0]; first.meaning {
		case meansLock:
			s.class, s.thread = Lock, true
			s.detail = first.name
		case meansNetwork:
			s.class, s.detail = IO, first.name
		case meansNative:
			s.native = true
		}
	}
	if s.waits == waitLock && len(inner) > 0 && !s.thread {
		s.detail = "" // of the library's
	}
	s.traces = find(inner, meansComputing) != nil
	switch operation := find(inner, meansCollective); {
	case operation != nil:
		s.class, s.name, s.detail, s.native = Collective, operation.name, "", false
	case s.phase == Saving || s.phase == Exporting:
		s.class, s.native = Checkpoint, false
	case find(inner, meansExit) != nil:
		s.class, s.detail, s.native = Exit, "", false
	case find(all, meansInput) != nil:
		s.class, s.native = Input, false
		if s.feed = find(inner, meansInput) != nil && find(inner, meansInput).name == feedInput; s.feed {
			s.detail = feedInput
		}
	case s.traces:
		s.class, s.native = Computing, false
	}
}

// firm returns whether the class follows from frames or the wait, so that the use of the CPU does not matter.
func (s *stack) firm() bool {
	return !s.native && !s.bare && s.class != Unknown && (s.class != Computing || s.traces)
}

// classify returns what a task is doing.
func (r reader) classify(t *Task) Finding {
	f := Finding{Class: Unknown, CPU: max(t.CPU, 0)}
	switch {
	case t.State == "stopped":
		return stoppedFinding(f)
	case t.over():
		f.Class, f.Detail, f.firm, f.fixed = Exit, "its program has ended", true, true
		return f
	case t.State == "waiting" || t.State == "launching":
		f.Detail, f.firm, f.fixed = "its program has not begun", true, true
		return f
	case len(t.Snapshots) == 0:
		f.Detail = t.Missing
		return f
	}
	var all []Finding
	for _, s := range t.Snapshots {
		all = append(all, r.snapshot(s, usedCPU(t)))
	}
	f = all[len(all)-1]
	for _, g := range all { // one of them may show more
		if g.Class == f.Class && g.function == f.function && g.firm && !f.firm {
			f = g
		}
	}
	f.fixed = len(all) > 1 && !slices.ContainsFunc(all, func(g Finding) bool {
		return g.Class != f.Class || g.function != f.function || g.Operation != f.Operation
	})
	return f
}

func stoppedFinding(f Finding) Finding {
	f.Class, f.Detail, f.firm, f.fixed = Stopped, "stopped (a SIGSTOP, or a debugger)", true, true
	return f
}

// usedCPU returns a task's use of the CPU: the mean of what its snapshots and heartbeats say.
func usedCPU(t *Task) float64 {
	sum, n := 0.0, 0
	for _, s := range t.Snapshots {
		sum, n = sum+float64(s.GetProcess().GetCpuPercent()), n+1
	}
	if t.CPU >= 0 {
		sum, n = sum+t.CPU, n+1
	}
	return sum / float64(max(n, 1))
}

// snapshot returns what a snapshot shows.
func (r reader) snapshot(s *clusterpb.Snapshot, cpu float64) Finding {
	f := Finding{Class: Unknown, CPU: cpu}
	if state := s.GetProcess().GetState(); state == "T" || state == "t" {
		return stoppedFinding(f)
	}
	if len(s.GetThreads()) == 0 {
		f.Detail = s.GetError()
		return byCPU(f, stack{native: true}, s)
	}
	first := max(0, slices.IndexFunc(s.GetThreads(), (*clusterpb.ThreadStack).GetMain))
	main := r.stack(s.GetThreads()[first])
	switch {
	case len(s.GetThreads()[first].GetFrames()) > 0:
	case s.GetThreadsLeftOut() > 0:
		main.class, main.detail = Unknown, "" // its stack is one of those that are left out
	case s.GetSource() != clusterpb.FromProc:
		main.class, main.detail = Exit, "" // its program has returned, and Python ends
	case main.waits == waitLock || main.waits == waitPoll:
		main.class, main.detail = Unknown, "" // it may be anywhere in Python
	}
	main = r.besides(main, slices.Delete(slices.Clone(s.GetThreads()), first, first+1))
	f.Class, f.Where, f.function, f.Detail, f.Operation, f.Phase, f.firm, f.native = main.class, main.where, main.function,
		main.detail, main.name, main.phase, main.firm(), main.bare
	f.feed, f.loads = main.feed, main.loads
	return byCPU(f, main, s)
}

// besides takes what the other threads are doing into account, if the main thread waits in native code or for a thread.
func (r reader) besides(main stack, others []*clusterpb.ThreadStack) stack {
	if !main.native && !main.bare && !main.thread {
		return main
	}
	var file bool
	var input *stack
	for _, t := range others {
		o := r.stack(t)
		switch {
		case o.class == Collective:
			o.where, o.function = cmp.Or(main.where, o.where), cmp.Or(main.function, o.function)
			return o
		case o.class == Input && o.program && input == nil:
			input = &o
		case o.waits == waitFile && !o.program:
			file = true
		}
	}
	switch {
	case input != nil:
		if input.detail == "" && file {
			input.detail = waitFile.detail()
		}
		return *input
	case file && (main.native || main.bare): // TensorFlow reads data in threads of its own
		main.class, main.detail, main.native, main.bare = Input, waitFile.detail(), false, false
	}
	return main
}

// byCPU decides by the use of the CPU what the stack leaves open.
func byCPU(f Finding, main stack, s *clusterpb.Snapshot) Finding {
	runs := slices.ContainsFunc(s.GetThreads(), func(t *clusterpb.ThreadStack) bool { return t.GetState() == "R" })
	switch {
	case main.waits == waitGC:
		f.Class, f.Detail, f.firm = Computing, waitGC.detail(), true
	case f.firm && !(f.CPU >= busy && (main.traces || main.thread)):
	case f.CPU >= busy:
		f.Class, f.Detail = Computing, ""
		f.firm = !main.native && !main.bare && !main.thread // a library may wait for others without giving up the CPU
	case main.native && len(s.GetThreads()) == 0:
	case main.native && f.CPU < idle:
		f.Class, f.Detail = Collective, ""
	case main.native, main.bare && f.CPU >= idle:
		f.Class, f.Detail = Computing, ""
	case main.bare:
		f.Class, f.Detail = Lock, waitLock.detail()
	case f.Class == Unknown && runs:
		f.Class = Computing
	}
	return f
}

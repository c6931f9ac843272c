package lifecycle

import (
	"reflect"
	"runtime"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// checkCounts compares the machine's counts and indexes with its executors and tasks.
func checkCounts(t *testing.T, l *Machine) {
	t.Helper()
	want := execCounts{unprepared: l.count.unprepared}
	if l.run != nil && l.run.State == RunPreparing {
		want.unprepared = 0
	}
	for _, x := range l.execs {
		if l.Executor(x.ID) != x {
			t.Errorf("executor %s is not found", x.ID)
		}
		want.unready += one(x.State != ExecutorReady)
		want.busy += one(x.Busy)
		want.skipped += one(x.inRun.skipped)
		if l.run != nil && l.run.State == RunPreparing {
			want.unprepared += one(x.Port == 0 && !x.inRun.skipped)
		}
	}
	if l.count != want {
		t.Errorf("the counts of executors are %+v, want %+v", l.count, want)
	}
	if l.run == nil {
		return
	}
	roles := map[string]*taskCounts{}
	for _, k := range l.run.Tasks {
		if l.run.task(k.ID) != k {
			t.Errorf("task %s is not found", k.ID)
		}
		n := roles[k.ID.Role]
		if n == nil {
			n = &taskCounts{awaits: l.run.count[k.ID.Role].awaits, overdue: l.run.count[k.ID.Role].overdue}
			roles[k.ID.Role] = n
		}
		n.total++
		n.waiting += one(k.State == TaskWaiting)
		n.launching += one(k.State == TaskLaunching)
		n.running += one(k.State == TaskRunning)
		n.joined += one(k.alive() && k.JoinedServer)
		if k.State == TaskWaiting && k.Awaits != n.awaits {
			t.Errorf("%s waits for %q, but its role for %q", k.ID, k.Awaits, n.awaits)
		}
	}
	if !reflect.DeepEqual(l.run.count, roles) {
		t.Errorf("tasks do not match the counts %+v", l.run.count)
	}
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// scale simulates clusters with many executors and measures the parts of their lives.
type scale struct {
	l    *Machine
	took map[string]time.Duration
}

// part measures the CPU time of this thread, because wall time depends on other processes.
func (s *scale) part(name string, play func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime()
	play()
	s.took[name] = threadTime() - before
}

func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// newScale returns a cluster of n workers and of n tasks of a role that the workers depend on.
func newScale(n int) *scale {
	roles := []*clusterpb.Role{
		{Name: cluster.Worker, Count: int32(n), DependsOn: []string{"db"}},
		{Name: "db", Count: int32(n), Kind: cluster.Untracked},
	}
	var execs []cluster.ExecutorRequest
	for i, t := range cluster.Tasks(roles) {
		execs = append(execs, cluster.ExecutorRequest{ID: cluster.ExecutorID(strconv.Itoa(i)), Task: t})
	}
	return &scale{New(execs, roles, DefaultLimits(), false), map[string]time.Duration{}}
}

func (s *scale) join() {
	for _, x := range s.l.execs {
		s.l.Step(cluster.Granted{Executor: x.ID, Host: "h"})
		s.l.Step(AgentJoined{Exec: x.ID, Incarnation: "i" + string(x.ID), Host: "h", Address: "10.0.0.1"})
		s.l.Step(AgentWarm{x.ID})
	}
}

func (s *scale) start(run int32) {
	s.l.Step(StartRequested{RunSpec{ID: run}})
	for _, x := range s.l.execs {
		s.l.Step(PortPrepared{Exec: x.ID, Run: run, Attempt: 1, Port: 7000})
	}
	for _, role := range []string{"db", cluster.Worker} {
		for _, x := range s.l.execs {
			if x.Task.Role == role {
				s.l.Step(ProgramEntered{run, x.Task})
			}
		}
	}
}

func (s *scale) beat() {
	for _, x := range s.l.execs {
		s.l.Step(UsageReported{x.ID, map[cluster.TaskID]bool{x.Task: false}})
	}
}

// exit ends all tasks that have a process.
func (s *scale) exit(run int32) {
	for _, x := range s.l.execs {
		if x.Busy {
			s.l.Step(ProgramExited{Run: run, Attempt: 1, Task: x.Task, Exit: &clusterpb.Exited{}})
		}
	}
}

// agree stops the run at a step that all tasks have agreed to.
func (s *scale) agree(run int32) {
	s.l.Step(StopRequested{Grace: 30 * time.Second})
	for range 2 { // the answer to AskStep, then the one to ActAtStep
		for _, x := range s.l.execs {
			if x.Task.Role == cluster.Worker {
				answer := &clusterpb.Step{Round: 1, Counter: "keras", Step: 10, Stride: 1, ReportSeconds: 0.1}
				s.l.Step(StepAnswered{Run: run, Attempt: 1, Task: x.Task, Step: answer})
			}
		}
	}
}

// TestLinear: the cost of an event does not depend on the number of executors.
func TestLinear(t *testing.T) {
	const few, factor, limit = 125, 64, 512 // a linear part takes about 64 times as long, a quadratic one 4096 times
	least := map[string][2]time.Duration{}
	worst := func() (name string, ratio float64) {
		for each, at := range least {
			if r := float64(at[1]) / float64(max(at[0], 100*time.Microsecond)); r >= ratio {
				name, ratio = each, r
			}
		}
		return name, ratio
	}
	for round := range 10 { // a machine that does other work makes single rounds slow
		if _, ratio := worst(); round >= 1 && ratio <= limit {
			break
		}
		for i, n := range []int{few, few * factor} {
			s := newScale(n)
			s.part("join", s.join)
			s.part("start", func() { s.start(1) })
			s.part("heartbeats", s.beat)
			s.part("exits", func() { s.exit(1) })
			s.start(2)
			s.part("agree on a step", func() { s.agree(2) })
			s.part("stop", func() { s.exit(2) })
			if s.l.run.State != RunStopped || s.l.count.busy > 0 || s.l.run.Spec.ID != 2 {
				t.Fatalf("run %d is %s, %d executors are busy", s.l.run.Spec.ID, s.l.run.State, s.l.count.busy)
			}
			for name, took := range s.took {
				at := least[name]
				if at[i] == 0 || took < at[i] {
					at[i] = took
				}
				least[name] = at
			}
		}
	}
	for name, at := range least {
		t.Logf("%-16s %v of %d, %v of %d", name, at[0], 2*few, at[1], 2*few*factor)
	}
	if name, ratio := worst(); ratio > limit {
		t.Errorf("%s: %d times as many executors take %.0f times as long", name, factor, ratio)
	}
}

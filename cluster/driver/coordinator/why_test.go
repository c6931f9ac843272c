package coordinator

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// stalling is a run of two workers whose agents answer for snapshots: worker:0 waits in an all-reduce, worker:1 reads a
// pipe.
type stalling struct {
	*coordinated
	rec   *record
	marks int64
	looks int // snapshots taken
}

func newStalling(t *testing.T) *stalling {
	t.Helper()
	c := coordinate(t, true)
	return &stalling{coordinated: c, rec: c.running()}
}

// active has tasks report a step in a phase.
func (s *stalling) active(step int64, phase string, tasks ...string) {
	s.marks++
	s.do(func() {
		for _, task := range tasks {
			s.taskEvent(
				&clusterpb.TaskEvent{Run: s.rec.status.GetId(), Attempt: 1, Task: task, Event: &clusterpb.TaskEvent_Activity{
					Activity: &clusterpb.Activity{
						Counter: "ctx", Step: step, Phase: phase, Marks: s.marks, Seconds: float64(time.Now().UnixNano()) / 1e9,
					},
				}})
		}
	})
}

// steps has both workers make steps, one in 200 ms.
func (s *stalling) steps(from, n int64) {
	for i := range n {
		time.Sleep(200 * time.Millisecond)
		s.active(from+i, "step", "worker:0", "worker:1")
	}
}

// during answers for the agents for a while.
func (s *stalling) during(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		for id, frame := range map[cluster.ExecutorID]*clusterpb.Frame{
			"0": {Function: "all_reduce", File: "/run/python-0a/tfcluster/collective.py", Line: 80},
			"1": {Function: "load_batch", File: "/home/me/mnist.py", Line: 33, Code: "f.read()"},
		} {
			round := int32(0)
			s.do(func() {
				if conn := s.execs.agents[id]; conn != nil { // otherwise it was replaced
					for _, in := range conn.take() {
						round = max(round, in.GetTakeSnapshot().GetRound())
					}
				}
			})
			if round != 0 {
				s.looks++
				thread := &clusterpb.ThreadStack{
					Main: true, State: "S", WaitChannel: "pipe_read", Frames: []*clusterpb.Frame{frame},
				}
				s.do(func() {
					if s.execs.agents[id] == nil {
						return
					}
					s.agentMessage(s.execs.agents[id],
						&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Snapshot{Snapshot: &clusterpb.SnapshotTaken{
							Round: round, Snapshot: &clusterpb.Snapshot{
								Task: "worker:" + string(id), Pid: 9, Source: clusterpb.FromPython,
								Process: &clusterpb.ProcessState{State: "S"}, Threads: []*clusterpb.ThreadStack{thread},
							},
						}}})
				})
			}
		}
	}
}

// line returns the line that clients see.
func (s *stalling) line() (line string) {
	s.do(func() { line = s.status(s.rec).GetStall() })
	return line
}

// TestStall: the line is there soon after the limit of the phase that the tasks are in, and goes with the next step.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStalling(t)
		s.active(0, "first_step", "worker:0", "worker:1")
		s.during(55 * time.Second)
		if s.looks != 0 {
			t.Errorf("%d snapshots were taken within the limit of the first step", s.looks)
		}
		s.steps(1, 30)
		s.during(9 * time.Second)
		if s.looks != 0 {
			t.Errorf("%d snapshots were taken within the limit of a step", s.looks)
		}
		s.during(4 * time.Second)
		want := "worker:1 is 11 s behind: in load_batch (mnist.py:33), CPU 0 %, waiting for a file; " +
			"0 waits for it in the all-reduce of step 31"
		if got := s.line(); got != want || s.looks != 4 {
			t.Errorf("after the limit, and %d snapshots: %q, want %q", s.looks, got, want)
		}
		s.during(20 * time.Second)
		if got := s.line(); !strings.HasPrefix(got, "worker:1 is 2") && !strings.HasPrefix(got, "worker:1 is 3") {
			t.Errorf("20 s later: %q", got)
		}
		s.steps(31, 1)
		if got := s.line(); got != "" {
			t.Errorf("after a step: %q", got)
		}
		s.during(2 * time.Second) // a look may have begun before
		looks := s.looks
		s.during(7 * time.Second)
		if s.looks != looks {
			t.Error("snapshots were taken within the limit after a stall")
		}
	})
}

// TestNoStall: when the tasks are not looked at, or what is seen is not shown.
func TestNoStall(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(s *stalling){
		"a run that is being stopped": func(s *stalling) {
			s.do(func() { s.handle(lifecycle.StopRequested{Grace: time.Hour}) })
		},
		"a run that is over": func(s *stalling) {
			s.returns(s.rec, 1, "worker:0", nil, 0)
			s.returns(s.rec, 1, "worker:1", nil, 0)
		},
		"tasks that are started again": func(s *stalling) {
			s.returns(s.rec, 1, "worker:1", nil, 1)
		},
		"no steps": func(s *stalling) {
			s.do(func() { s.rec.stall.monitor.Forget(cluster.TaskID{Role: cluster.Worker}) })
			s.do(func() { s.rec.stall.monitor.Forget(cluster.TaskID{Role: cluster.Worker, Index: 1}) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStalling(t)
				s.steps(1, 30)
				do(s)
				s.during(3 * time.Minute)
				if s.looks != 0 || s.line() != "" {
					t.Errorf("%d snapshots, line %q", s.looks, s.line())
				}
			})
		})
	}
	t.Run("a step while the tasks are looked at", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStalling(t)
			s.steps(1, 30)
			s.during(10500 * time.Millisecond)
			if s.looks != 2 {
				t.Fatalf("%d snapshots", s.looks)
			}
			s.steps(31, 1)
			s.during(3 * time.Second)
			if s.line() != "" {
				t.Errorf("the line is %q", s.line())
			}
		})
	})
	t.Run("an agent that does not answer", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := newStalling(t)
			s.steps(1, 30)
			time.Sleep(time.Minute)
			if s.line() != "" {
				t.Errorf("the line is %q", s.line())
			}
		})
	})
}

// TestStallAfterAnExit: the limit is that of the tasks that are left, and an exit of an earlier attempt, which an agent
// repeats when it connects again, removes no line.
func TestStallAfterAnExit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStalling(t)
		s.steps(1, 30)
		s.active(31, "after_training", "worker:0")
		s.active(31, "step", "worker:1")
		s.during(15 * time.Second)
		if s.looks != 0 {
			t.Errorf("%d snapshots were taken within the limit of a task after training", s.looks)
		}
		s.returns(s.rec, 1, "worker:0", nil, 0)
		s.during(5 * time.Second)
		line := s.line()
		if !strings.HasPrefix(line, "worker:1 has made no step for 1") {
			t.Errorf("without this task: %q", line)
		}
		s.returns(s.rec, 0, "worker:1", nil, 1)
		if got := s.line(); got != line {
			t.Errorf("after an exit of an earlier attempt: %q", got)
		}
	})
}

// TestWhy: of the active run, of the last one, and before the first.
func TestWhy(t *testing.T) {
	t.Parallel()
	ask := func(c *coordinated) *clusterpb.WhyReply {
		c.t.Helper()
		r, err := c.Control().Why(context.Background(), &clusterpb.WhyRequest{})
		if err != nil {
			c.t.Fatal(err)
		}
		return r
	}
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		if got := ask(c).GetText(); got != "no run has been started" {
			t.Errorf("without a run: %q", got)
		}
		s := &stalling{coordinated: c, rec: c.running()}
		s.steps(1, 5)
		replies := make(chan *clusterpb.WhyReply, 1)
		time.Sleep(5 * time.Second)
		go func() { replies <- ask(c) }()
		s.during(3 * time.Second)
		r := <-replies
		if strings.Join(r.GetCulprits(), " ") != "worker:1" || !r.GetCertain() || r.GetRun() != 1 || len(r.GetTasks()) != 2 ||
			s.looks != 4 {
			t.Errorf("after %d snapshots: %v", s.looks, r)
		}
		if x := r.GetTasks()[1]; x.GetStep() != 5 || x.GetStepAgeSeconds() < 5 ||
			x.GetWhere() != "load_batch (mnist.py:33)" || x.GetClass() != "io" || x.GetState() != "running" {
			t.Errorf("worker:1 is %v", x)
		}
		c.returns(s.rec, 1, "worker:0", nil, 0)
		c.returns(s.rec, 1, "worker:1", nil, 0)
		if got := ask(c).GetText(); !strings.HasPrefix(got, "no run is active: run 1 finished after") {
			t.Errorf("after the run: %q", got)
		}
	})
}

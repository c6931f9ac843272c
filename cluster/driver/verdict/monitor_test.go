package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// clock plays a Monitor: each line of a script is an event of a task, or a verdict.
type clock struct {
	t     *testing.T
	m     *Monitor
	now   time.Time
	marks int64
}

func newClock(t *testing.T) *clock {
	t.Helper()
	return &clock{t: t, m: &Monitor{}, now: time.Unix(1_000_000, 0)}
}

// worker returns a worker's name.
func worker(n int) cluster.TaskID { return cluster.TaskID{Role: cluster.Worker, Index: n} }

// report has workers 0 and 1 report a phase and a step, d after the last event.
func (c *clock) report(d time.Duration, phase Phase, counter string, step int64) (removed bool) {
	c.now = c.now.Add(d)
	c.marks++
	for n := range 2 {
		a := &clusterpb.Activity{
			Counter: counter, Step: step, Phase: string(phase), Marks: c.marks, Seconds: float64(c.now.UnixNano()) / 1e9,
		}
		removed = c.m.Report(worker(n), a, c.now) || removed
	}
	return removed
}

// steps has them end steps of this duration, from a step on.
func (c *clock) steps(from, n int64, each time.Duration) {
	for i := range n {
		c.report(each, Steps, "batches", from+i)
	}
}

// wantDue checks when the tasks are looked at, after the last event.
func (c *clock) wantDue(want time.Duration) {
	c.t.Helper()
	due, on := c.m.Due()
	if got := due.Sub(c.now); !on || got.Round(time.Millisecond) != want {
		c.t.Errorf("the tasks are looked at after %v (%v), want %v", got, on, want)
	}
}

// judged passes a verdict, d after the last event.
func (c *clock) judged(d time.Duration, v Verdict) string {
	c.now = c.now.Add(d)
	before := c.m.Line()
	if changed := c.m.Judged(&v, c.now); changed != (before != c.m.Line()) {
		c.t.Errorf("the line was %q and is %q, which is reported as changed: %v", before, c.m.Line(), changed)
	}
	return c.m.Line()
}

var (
	blockedVerdict = Verdict{
		Text: "worker:1 is behind", Culprits: []cluster.TaskID{worker(1)}, Held: true, Stuck: true, Certain: true,
	}
	computingVerdict = Verdict{
		Text: "worker:1 computes", Culprits: []cluster.TaskID{worker(1)}, Held: true, Computing: true,
	}
	savingVerdict = Verdict{
		Text: "worker:1 saves", Culprits: []cluster.TaskID{worker(1)}, Held: true, Stuck: true, Phase: Saving,
	}
	stuckVerdict  = Verdict{Text: "Not sure", Stuck: true}
	nobodyVerdict = Verdict{Text: "all compute"}
)

// TestLimits: how long a run may make no progress, by what its programs do.
func TestLimits(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	if _, on := c.m.Due(); on {
		t.Error("the check is on before anything is reported")
	}
	c.report(0, FirstStep, "", 0)
	c.wantDue(60 * time.Second)
	c.report(50*time.Second, Steps, "batches", 1)
	c.wantDue(10 * time.Second)
	c.steps(2, 50, 200*time.Millisecond)
	c.wantDue(10 * time.Second)
	c.steps(52, 200, 5*time.Second)
	c.wantDue(15 * time.Second)
	c.report(time.Second, BetweenEpochs, "batches", 252)
	c.wantDue(60 * time.Second)
	c.report(time.Second, Validation, "batches", 252)
	c.wantDue(60 * time.Second)
	c.report(40*time.Second, Validation, "batches", 252)
	c.wantDue(120 * time.Second)
	c.report(time.Second, Saving, "batches", 252)
	c.wantDue(60 * time.Second)
	c.report(time.Second, FirstStep, "batches", 252)
	c.wantDue(150 * time.Second) // the first one took 50 s
	c.report(time.Second, AfterTraining, "batches", 252)
	c.wantDue(60 * time.Second)
	c.m.Forget(worker(0))
	c.m.Forget(worker(1))
	if _, on := c.m.Due(); on {
		t.Error("the check is on when every task has ended")
	}
	if n := len(c.m.count); n != 0 {
		t.Errorf("counts are left: %v", c.m.count)
	}
}

// TestMedian: steps of a task's clock count, not the time at which reports arrive.
func TestMedian(t *testing.T) {
	t.Parallel()
	m := &Monitor{}
	now := time.Unix(1_000_000, 0)
	for i := range 40 {
		at := now.Add(time.Duration(i/10) * time.Minute) // ten reports at once
		m.Report(worker(0), &clusterpb.Activity{
			Counter: "ctx", Step: int64(10 * i), Phase: string(Steps), Marks: int64(i + 1), Seconds: float64(5 * i),
		}, at)
	}
	if got := m.Run(1, now).Median; got != 500*time.Millisecond {
		t.Errorf("the median step takes %v", got)
	}
	for _, odd := range []float64{-1, 1e9} {
		m.Report(worker(0),
			&clusterpb.Activity{Counter: "ctx", Step: 1_000_000, Phase: string(Steps), Marks: 1000, Seconds: odd}, now)
	}
	// Another counter.
	m.Report(worker(0), &clusterpb.Activity{Counter: "batches", Step: 3, Phase: string(Steps), Marks: 1001, Seconds: 7},
		now)
	if got := m.Run(1, now).Median; got != 500*time.Millisecond {
		t.Errorf("the median step takes %v", got)
	}
	m.Report(cluster.TaskID{Role: cluster.Evaluator}, &clusterpb.Activity{Counter: "ctx", Step: 1, Marks: 1}, now)
	if _, age := m.Step(cluster.TaskID{Role: cluster.Evaluator}, now); age >= 0 {
		t.Error("an evaluator's step counts")
	}
}

// TestLine: a verdict is shown while there is no progress, and looked at again from time to time.
func TestLine(t *testing.T) {
	t.Parallel()
	c := newClock(t)
	c.steps(1, 50, 200*time.Millisecond)
	if line := c.judged(10*time.Second, blockedVerdict); line != blockedVerdict.Text {
		t.Fatalf("the line is %q", line)
	}
	c.wantDue(10 * time.Second)
	later := blockedVerdict
	later.Text = "worker:1 is further behind"
	if line := c.judged(30*time.Second, later); line != later.Text {
		t.Errorf("the line is %q", line)
	}
	c.wantDue(20 * time.Second)
	c.judged(10*time.Minute, later)
	c.wantDue(time.Minute)
	if line := c.judged(time.Minute, nobodyVerdict); line != "" {
		t.Errorf("the line is %q, and all compute", line)
	}
	c.judged(time.Minute, later)
	if !c.report(time.Second, Steps, "batches", 51) || c.m.Line() != "" {
		t.Errorf("after a step the line is %q", c.m.Line())
	}
	c.wantDue(10 * time.Second) // the same stall is shown as soon
}

// TestQuiet: what is no alarm.
func TestQuiet(t *testing.T) {
	t.Parallel()
	t.Run("all compute", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		c.steps(1, 50, 200*time.Millisecond)
		if line := c.judged(10*time.Second, nobodyVerdict); line != "" {
			t.Errorf("the line is %q", line)
		}
		c.wantDue(10 * time.Second)
	})
	t.Run("a checkpoint that no mark announced", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		c.steps(1, 50, 200*time.Millisecond)
		if line := c.judged(10*time.Second, savingVerdict); line != "" {
			t.Errorf("the line is %q after 10 s", line)
		}
		c.wantDue(50 * time.Second)
		if line := c.judged(50*time.Second, savingVerdict); line != savingVerdict.Text {
			t.Errorf("the line is %q after 60 s", line)
		}
		c.report(10*time.Second, Steps, "batches", 51) // it took 70 s
		c.steps(52, 50, 200*time.Millisecond)
		c.judged(10*time.Second, savingVerdict)
		c.wantDue(200 * time.Second)
	})
	t.Run("one that computes long, again", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		c.steps(1, 50, 200*time.Millisecond)
		if line := c.judged(10*time.Second, computingVerdict); line == "" {
			t.Error("there is no line")
		}
		c.report(20*time.Second, Steps, "batches", 51)
		c.steps(52, 50, 200*time.Millisecond)
		if line := c.judged(31*time.Second, computingVerdict); line != "" {
			t.Errorf("the line is %q, as long as before", line)
		}
	})
	t.Run("one that computes between collective operations", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		for i := range int64(20) {
			c.report(time.Millisecond, Steps, "operations", i)
		}
		if line := c.judged(20*time.Second, computingVerdict); line != "" {
			t.Errorf("the line is %q", line)
		}
		if line := c.judged(time.Second, blockedVerdict); line == "" {
			t.Error("there is no line for one that is blocked")
		}
	})
	t.Run("one that compiles longer than the others", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		c.report(0, FirstStep, "", 0)
		if line := c.judged(100*time.Second, computingVerdict); line != "" {
			t.Errorf("the line is %q after 100 s", line)
		}
		if line := c.judged(100*time.Second, computingVerdict); line == "" {
			t.Error("there is no line after 200 s")
		}
	})
	t.Run("after training", func(t *testing.T) {
		t.Parallel()
		c := newClock(t)
		c.steps(1, 50, 200*time.Millisecond)
		c.report(time.Second, AfterTraining, "batches", 50)
		if line := c.judged(2*time.Minute, stuckVerdict); line != "" {
			t.Errorf("the line is %q", line)
		}
		if line := c.judged(time.Minute, blockedVerdict); line == "" {
			t.Error("there is no line, and others wait")
		}
	})
}

// TestOwn: a straggler is the task that needs longer on its own.
func TestOwn(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		own  []float64 // seconds of a step of each worker; negative: not measured
		want string    // slowdowns
	}{
		"one of four":    {[]float64{0.1, 0.1, 0.3, 0.11}, "0 0 3 0"},
		"one of two":     {[]float64{0.1, 0.3}, "0 3"},
		"none":           {[]float64{0.1, 0.12, 0.13}, "0 0 0"},
		"too short":      {[]float64{0.001, 0.005}, "0 0"},
		"not measured":   {[]float64{-1, 0.3}, "0 0"},
		"half of them":   {[]float64{0.1, 0.1, 0.3, 0.3}, "0 0 3 3"},
		"all but one":    {[]float64{0.1, 0.3, 0.3}, "0 0 0"},
		"alone":          {[]float64{0.3}, "0"},
		"nothing at all": {[]float64{1e-6, 0.3}, "0 300000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &Monitor{}
			for step := range 20 {
				for n, own := range tt.own {
					m.Report(worker(n), &clusterpb.Activity{
						Counter: "ctx", Step: int64(step), Marks: int64(step + 1), Phase: string(Steps), Seconds: float64(step),
						OwnSeconds: own * float64(step), Measured: own > 0,
					}, time.Unix(int64(step), 0))
				}
			}
			var got []string
			all := m.Own()
			for n := range tt.own {
				got = append(got, fmt.Sprintf("%.0f", all[worker(n)].Slowdown))
			}
			if strings.Join(got, " ") != tt.want {
				t.Errorf("the slowdowns are %v, want %s", got, tt.want)
			}
		})
	}
}

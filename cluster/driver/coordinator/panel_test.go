package coordinator

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// watching is a panel of a test.
type watching struct {
	statuses chan *clusterpb.ClusterStatus
	ended    chan error
	leave    context.CancelFunc
}

func (c *coordinated) watches() *watching {
	ctx, leave := context.WithCancel(context.Background())
	w := &watching{make(chan *clusterpb.ClusterStatus, 10_000), make(chan error, 1), leave}
	stream := &sent[clusterpb.ClusterStatus]{ctx: ctx, every: func(st *clusterpb.ClusterStatus) { w.statuses <- st }}
	go func() { w.ended <- c.Control().Watch(&clusterpb.WatchRequest{}, stream) }()
	return w
}

// take returns the messages so far.
func (w *watching) take() (all []*clusterpb.ClusterStatus) {
	for {
		select {
		case st := <-w.statuses:
			all = append(all, st)
		default:
			return all
		}
	}
}

// heartbeat is one of both workers' heartbeats.
func (c *coordinated) heartbeat(n int) {
	c.t.Helper()
	c.do(func() {
		for _, id := range []cluster.ExecutorID{"0", "1"} {
			c.agentMessage(c.execs.agents[id],
				&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: &clusterpb.Heartbeat{
					Usage: []*clusterpb.TaskUsage{{
						Task: c.execs.tasks[id], Pid: 7,
						Usage: &clusterpb.Usage{RssBytes: uint64(n), CpuSeconds: new(float64(n))},
					}},
				}}})
		}
	})
}

// TestWatch: a panel gets the status at once and after changes, however little time passes; a message for usage
// every two seconds; none for durations.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		w := c.watches()
		synctest.Wait()
		first := w.take()
		if len(first) != 1 || first[0].GetState() != "ready" || first[0].GetClients() != 0 || first[0].GetRequest() == nil {
			t.Fatalf("the first messages are %v", first)
		}
		if c.subs.hasFollowers() {
			t.Error("a panel counts as a client that follows")
		}
		rec := c.running()
		time.Sleep(time.Second)
		if got := w.take(); len(got) == 0 || len(got) > 5 || got[len(got)-1].GetRun().GetState() != "running" {
			t.Errorf("of a start it gets %v", got)
		}
		for i := range 100 { // ten seconds
			c.heartbeat(i)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(w.take()); n < 4 || n > 6 {
			t.Errorf("in ten seconds of heartbeats it gets %d messages", n)
		}
		for i := range 10 { // the agents speak, and their tasks use nothing more
			c.heartbeat(100)
			time.Sleep(time.Second)
			if i == 4 {
				w.take()
			}
		}
		if got := w.take(); len(got) != 0 {
			t.Errorf("while only time passes it gets %d messages", len(got))
		}
		c.returns(rec, 1, "worker:0", nil, 1)
		time.Sleep(100 * time.Millisecond)
		if got := w.take(); len(got) == 0 || got[0].GetRun().GetTasks()[0].GetState() == "running" {
			t.Errorf("100 ms after a task's exit it has %v", got)
		}
		w.leave()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		if len(c.subs.panels) != 0 {
			t.Error("a panel that has left is still notified")
		}
	})
}

// TestWatchSteps: steps are sent twice a second, and do not delay a stop; a panel is sent no value of a result.
func TestWatchSteps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		rec := c.running()
		w := c.watches()
		step := int64(0)
		steps := func(n int) {
			for range n {
				step++
				c.do(func() {
					c.taskEvent(&clusterpb.TaskEvent{Run: 1, Attempt: 1, Task: "worker:0", Event: &clusterpb.TaskEvent_Report{
						Report: &clusterpb.Report{Step: step, Metrics: map[string]float64{"loss": float64(step)}},
					}})
				})
				time.Sleep(10 * time.Millisecond)
			}
		}
		steps(1000)
		if n := len(w.take()); n < 15 || n > 25 {
			t.Errorf("in ten seconds of steps it gets %d messages", n)
		}
		if _, err := c.Control().Stop(within(t), &clusterpb.StopRequest{GraceMillis: 60_000}); err != nil {
			t.Fatal(err)
		}
		steps(9)
		if got := w.take(); len(got) == 0 || got[len(got)-1].GetRun().GetState() != "stopping" {
			t.Errorf("90 ms after a stop it has %d messages", len(got))
		}
		for _, task := range []string{"worker:0", "worker:1"} {
			c.returns(rec, 1, task, bigValue(), 0)
		}
		time.Sleep(time.Second)
		got := w.take()
		onlyReprs(t, "Watch", got[len(got)-1].GetRun())
		w.leave()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestWatchTasks: each task has the rate of its own steps, and its own loss; a loss that is not finite is no news.
func TestWatchTasks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		c.running()
		w := c.watches()
		for step := range int64(41) { // worker:0 takes 10 steps a second, worker:1 takes 5
			c.do(func() {
				for i, task := range []string{"worker:0", "worker:1"} {
					if step%int64(i+1) != 0 {
						continue
					}
					loss := float64(step)
					if step == 40 {
						loss = math.NaN()
					}
					c.taskEvent(&clusterpb.TaskEvent{Run: 1, Attempt: 1, Task: task, Event: &clusterpb.TaskEvent_Report{
						Report: &clusterpb.Report{Step: step / int64(i+1), Metrics: map[string]float64{"loss": loss}},
					}})
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Second)
		all := w.take()
		run := all[len(all)-1].GetRun()
		for i, want := range []struct{ rate, loss float64 }{{10, 39}, {5, 38}} {
			got := run.GetTasks()[i]
			if math.Abs(got.GetStepsPerSecond()-want.rate) > 0.01 || got.GetLoss() != want.loss {
				t.Errorf("%s: %v steps/s, loss %v; want %v, %v", got.GetTask(), got.GetStepsPerSecond(), got.GetLoss(),
					want.rate, want.loss)
			}
		}
		if run.GetStepsPerSecond() != run.GetTasks()[0].GetStepsPerSecond() {
			t.Errorf("the run takes %v steps/s, its first worker %v", run.GetStepsPerSecond(),
				run.GetTasks()[0].GetStepsPerSecond())
		}
		w.leave()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestWatchSilence: an agent that is silent is shown before it is lost.
func TestWatchSilence(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		synctest.Wait() // the engine has answered
		w := c.watches()
		time.Sleep(2500 * time.Millisecond) // between two heartbeats
		if got := w.take(); len(got) != 1 || got[0].GetExecutors()[1].GetSilentSeconds() != 0 {
			t.Fatalf("of agents that speak it gets %v", got)
		}
		c.silence()
		time.Sleep(2500 * time.Millisecond)
		if got := w.take(); len(got) != 0 {
			t.Errorf("of agents that are silent for a moment it gets %v", got)
		}
		time.Sleep(4 * time.Second)
		if got := w.take(); len(got) != 1 || got[0].GetExecutors()[1].GetSilentSeconds() < 5 {
			t.Errorf("of silent agents it gets %v", got)
		}
		c.do(func() { c.agentLeft(c.execs.agents["1"], "10") })
		time.Sleep(time.Second)
		got := w.take()
		if len(got) == 0 || got[len(got)-1].GetExecutors()[1].GetSilentSeconds() < 5 {
			t.Errorf("of an agent that has left it gets %v", got)
		}
		w.leave()
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}

// TestWatchersDoNotKeepTheCluster: the idle timer runs with panels, which are told of the end, and which the end does
// not wait for.
func TestWatchersDoNotKeepTheCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true, func(cfg *Config) { cfg.Request.IdleMillis = 60_000 })
		panels := []*watching{c.watches(), c.watches()}
		began := time.Now()
		<-c.done
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the cluster ends after %s", took)
		}
		var last *clusterpb.ClusterStatus
		for _, w := range panels {
			if err := <-w.ended; err != nil {
				t.Errorf("it ends with %v", err)
			}
			got := w.take()
			if last != nil && !proto.Equal(last, got[len(got)-1]) {
				t.Errorf("the last status is %v, and %v", last, got[len(got)-1])
			}
			if last = got[len(got)-1]; last.GetState() != "released" || len(last.GetExecutors()) > 0 || last.GetWaiting() != "" {
				t.Errorf("the last status is %v", last)
			}
		}
	})
}

// TestSamples: heartbeats of a run become samples of its tasks, and their GPUs' use is in the status; what an executor
// says of another one's task is ignored.
func TestSamples(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := coordinate(t, true)
		beat := func(pid int32, n int) {
			c.do(func() {
				c.agentMessage(c.execs.agents["1"],
					&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: &clusterpb.Heartbeat{
						Gpus: []*clusterpb.GPU{
							{Uuid: "GPU-a", Utilization: 30, UsedBytes: 2 << 30}, {Uuid: "GPU-b", Utilization: 50, UsedBytes: 1 << 30},
						},
						Usage: []*clusterpb.TaskUsage{
							{
								Task: "worker:1", Pid: pid,
								Usage: &clusterpb.Usage{RssBytes: 1 << 20, CpuSeconds: new(float64(n) / 2)},
							},
							{Task: "worker:0", Pid: 1, Usage: &clusterpb.Usage{CpuSeconds: new(float64(n))}},
							{Task: "worker:77", Pid: 1, Usage: &clusterpb.Usage{CpuSeconds: new(float64(n))}},
						},
					}}})
			})
			time.Sleep(time.Second)
		}
		read := func(req *clusterpb.SamplesRequest) []*clusterpb.TaskSamples {
			r, err := c.Control().Samples(within(t), req)
			if err != nil {
				t.Fatal(err)
			}
			return r.GetTasks()
		}
		beat(7, 0)
		st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
		if err != nil || st.GetExecutors()[1].GetGpuPercent() != 40 || st.GetExecutors()[1].GetGpuUsedBytes() != 3<<30 ||
			st.GetExecutors()[0].GetGpuUsedBytes() != 0 {
			t.Errorf("the GPUs' use is %v: %v", st.GetExecutors(), err)
		}
		rec := c.running()
		for i := range 11 {
			beat(7, i)
		}
		got := read(&clusterpb.SamplesRequest{})
		want := &clusterpb.Usage{
			RssBytes: 1 << 20, CpuPercent: 50, GpuPercent: new(float32(40)), GpuUsedBytes: new(uint64(3 << 30)),
		}
		if len(got) != 1 || got[0].GetTask() != "worker:1" || len(got[0].GetUnixMillis()) != 5 ||
			!proto.Equal(got[0].GetUsage()[4], want) {
			t.Fatalf("the samples are %v", got)
		}
		if len(rec.tasks) != 2 {
			t.Errorf("the run has %d tasks", len(rec.tasks))
		}
		c.returns(rec, 1, "worker:1", nil, 1) // the run restarts
		time.Sleep(time.Minute)
		last := got[0].GetUnixMillis()[4]
		if got := read(&clusterpb.SamplesRequest{Task: "worker:1", AfterUnixMillis: last}); len(got) != 0 {
			t.Errorf("of a task without a process there are %v", got)
		}
		for i := range 5 {
			beat(8, i)
		}
		if got := read(&clusterpb.SamplesRequest{Task: "worker:1"}); len(got) != 1 || len(got[0].GetUnixMillis()) != 7 ||
			got[0].GetUnixMillis()[5] < last+60_000 {
			t.Errorf("after the restart there are %v", got)
		}
		if _, err := c.Control().Samples(within(t), &clusterpb.SamplesRequest{Task: "worker:77"}); status.Code(err) !=
			codes.NotFound {
			t.Errorf("of no task: %v", err)
		}
	})
}

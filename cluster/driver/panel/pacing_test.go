package panel

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func someStatus() *clusterpb.ClusterStatus {
	return &clusterpb.ClusterStatus{
		Name: "c", State: "running", IdleLeftMillis: 500, Request: &clusterpb.ReserveRequest{Name: "c"},
		Executors: []*clusterpb.ExecutorStatus{
			{Id: "0", State: "ready", SilentSeconds: 4, GpuPercent: 10, Gpus: []*clusterpb.GPU{{Uuid: "GPU-a"}}},
		},
		Run: &clusterpb.RunStatus{
			Id: 1, State: "running", Seconds: 3, Progress: &clusterpb.Report{Step: 4},
			Series: []*clusterpb.Series{{Name: "loss", Steps: []int64{1}, Values: []float64{2}}}, Tasks: []*clusterpb.TaskStatus{
				{Task: "worker:0", State: "running", Step: 4, StepAgeSeconds: 1, Usage: &clusterpb.Usage{RssBytes: 5}},
			},
		},
	}
}

// TestChanges: durations are no change; progress and usage are changes after a while, others at once.
func TestChanges(t *testing.T) {
	t.Parallel()
	const never = time.Hour
	for name, tt := range map[string]struct {
		change func(*clusterpb.ClusterStatus)
		after  time.Duration // since the last message
	}{
		"nothing":            {func(*clusterpb.ClusterStatus) {}, never},
		"the run's duration": {func(st *clusterpb.ClusterStatus) { st.Run.Seconds++ }, never},
		"a step's age":       {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].StepAgeSeconds++ }, never},
		"the idle time":      {func(st *clusterpb.ClusterStatus) { st.IdleLeftMillis-- }, never},
		"the idle timer":     {func(st *clusterpb.ClusterStatus) { st.IdleLeftMillis = 0 }, 0},
		"a longer silence":   {func(st *clusterpb.ClusterStatus) { st.Executors[0].SilentSeconds++ }, never},
		"a silence's end":    {func(st *clusterpb.ClusterStatus) { st.Executors[0].SilentSeconds = 0 }, 0},
		"a step":             {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].Step++ }, ProgressEvery},
		"a step's own time":  {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].OwnStepSeconds++ }, ProgressEvery},
		"a stall":            {func(st *clusterpb.ClusterStatus) { st.Run.Stall = "worker:1 is behind" }, 0},
		"a task's rate":      {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].StepsPerSecond++ }, ProgressEvery},
		"a task's loss":      {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].Loss = proto.Float64(1) }, ProgressEvery},
		"the run's step":     {func(st *clusterpb.ClusterStatus) { st.Run.Progress.Step++ }, ProgressEvery},
		"a metric":           {func(st *clusterpb.ClusterStatus) { st.Run.Series[0].Values[0]++ }, ProgressEvery},
		"lines":              {func(st *clusterpb.ClusterStatus) { st.Run.Lines++ }, ProgressEvery},
		"memory":             {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].Usage.RssBytes++ }, UsageEvery},
		"a GPU's use":        {func(st *clusterpb.ClusterStatus) { st.Executors[0].GpuPercent++ }, UsageEvery},
		"a task's GPUs": {
			func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].Usage.GpuUsedBytes = new(uint64(1)) }, UsageEvery,
		},
		"a task's state":  {func(st *clusterpb.ClusterStatus) { st.Run.Tasks[0].State = "exited" }, 0},
		"the run's state": {func(st *clusterpb.ClusterStatus) { st.Run.State = "stopping" }, 0},
		"an executor":     {func(st *clusterpb.ClusterStatus) { st.Executors[0].State = "lost" }, 0},
		"a note":          {func(st *clusterpb.ClusterStatus) { st.Notes = append(st.Notes, &clusterpb.Note{Text: "x"}) }, 0},
		"another run":     {func(st *clusterpb.ClusterStatus) { st.Run = &clusterpb.RunStatus{Id: 2} }, 0},
		"no run":          {func(st *clusterpb.ClusterStatus) { st.Run = nil }, 0},
		"a kernel":        {func(st *clusterpb.ClusterStatus) { st.Clients++ }, 0},
	} {
		first := time.Now()
		for _, after := range []time.Duration{0, ProgressEvery, UsageEvery} {
			var p Pacer
			if !p.Offer(someStatus(), first) {
				t.Fatal("the first status is not sent")
			}
			st := someStatus()
			tt.change(st)
			want := proto.CloneOf(st)
			if sent := p.Offer(st, first.Add(after)); sent != (after >= tt.after) {
				t.Errorf("%s, %s after a message: sent is %v", name, after, sent)
			}
			if !proto.Equal(st, want) {
				t.Errorf("%s: the status was changed", name)
			}
		}
	}
}

// TestPace: however often the state changes, at most five messages are sent in any second; a single change, also
// between steps, waits less than 100 ms.
func TestPace(t *testing.T) {
	t.Parallel()
	var p Pacer
	st := someStatus()
	var sent []time.Time
	began := time.Now()
	for now := began; now.Sub(began) < 5*time.Second; now = now.Add(5 * time.Millisecond) {
		st = proto.CloneOf(st)
		st.State = now.String()
		if p.Rest(now) == 0 && p.Offer(st, now) {
			sent = append(sent, now)
		}
	}
	if len(sent) < 20 {
		t.Errorf("%d messages in 5 s", len(sent))
	}
	for i, at := range sent[PerSecond:] {
		if d := at.Sub(sent[i]); d < time.Second {
			t.Errorf("%d messages in %s", PerSecond+1, d)
		}
	}
	for stop := range 20 {
		var p Pacer
		st := someStatus()
		at := began.Add(time.Second + time.Duration(stop)*37*time.Millisecond)
		for now := began; ; now = now.Add(5 * time.Millisecond) {
			st = proto.CloneOf(st)
			st.Run.Progress.Step++
			st.Run.Tasks[0].Usage.RssBytes++
			if !now.Before(at) {
				st.Run.State = "stopping"
			}
			if p.Rest(now) == 0 && p.Offer(st, now) && st.Run.State == "stopping" {
				if d := now.Sub(at); d >= 100*time.Millisecond {
					t.Errorf("a stop waits %s", d)
				}
				break
			}
			if now.Sub(at) > time.Second {
				t.Fatal("a stop is not sent")
			}
		}
	}
}

// BenchmarkOffer is a look at a cluster of 5,000 executors.
func BenchmarkOffer(b *testing.B) {
	st := someStatus()
	for i := range 5000 {
		e, task := proto.CloneOf(st.Executors[0]), proto.CloneOf(st.Run.Tasks[0])
		e.Id, task.Task = fmt.Sprint(i), fmt.Sprint("worker:", i)
		e.Python = &clusterpb.Python{Executable: "/usr/bin/python3", Version: "3.12", Tensorflow: "2.20"}
		st.Executors, st.Run.Tasks = append(st.Executors, e), append(st.Run.Tasks, task)
	}
	var p Pacer
	now := time.Now()
	p.Offer(st, now)
	other := proto.CloneOf(st)
	for b.Loop() {
		p.Offer(other, now)
	}
}

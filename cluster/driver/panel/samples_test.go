package panel

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func use(pid int32, cpu float64, rss uint64) *clusterpb.TaskUsage {
	return &clusterpb.TaskUsage{Task: "worker:0", Pid: pid, Usage: &clusterpb.Usage{RssBytes: rss, CpuSeconds: &cpu}}
}

// sound reports samples that are not in order or whose arrays have other lengths.
func sound(t *testing.T, s *clusterpb.TaskSamples) {
	t.Helper()
	n := len(s.GetUnixMillis())
	if len(s.GetUsage()) != n {
		t.Errorf("the arrays have the lengths %d %d", n, len(s.GetUsage()))
	}
	for i := 1; i < n; i++ {
		if s.GetUnixMillis()[i] <= s.GetUnixMillis()[i-1] {
			t.Errorf("sample %d is not after the one before", i)
		}
	}
}

// TestSamples: two hours of heartbeats, more often than samples are taken, leave one sample in 2 s of the last hour.
func TestSamples(t *testing.T) {
	t.Parallel()
	for _, beat := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 700 * time.Millisecond} {
		s := NewSamples()
		now := s.began
		for i := range int(2 * time.Hour / beat) {
			jitter := time.Duration(i%3-1) * 20 * time.Millisecond
			now = s.began.Add(time.Duration(i+1)*beat + jitter)
			s.Add(use(7, 1.5*now.Sub(s.began).Seconds(), uint64(i)<<20), now)
		}
		got := s.Since("worker:0", 0, now)
		sound(t, got)
		if n := len(got.GetUnixMillis()); n < perTask*85/100 || n > perTask {
			t.Errorf("heartbeats each %s: %d samples", beat, n)
		}
		for i, u := range got.GetUsage() {
			if math.Abs(u.GetCpuPercent()-150) > 1 || u.CpuSeconds != nil {
				t.Errorf("heartbeats each %s: sample %d is %v", beat, i, u)
				break
			}
		}
		last := got.GetUnixMillis()[len(got.GetUnixMillis())-1]
		if age := now.UnixMilli() - last; age < 0 || age > 3000 {
			t.Errorf("heartbeats each %s: the last sample is %d ms old", beat, age)
		}
		if rss := got.GetUsage()[len(got.GetUsage())-1].GetRssBytes(); rss>>20<<20 != rss || rss == 0 {
			t.Errorf("the last sample has %d bytes", rss)
		}
		if later := s.Since("worker:0", last, now); later != nil {
			t.Errorf("after the last sample there is %v", later)
		}
		if n := len(s.Since("worker:0", last-10_000, now).GetUnixMillis()); n < 4 || n > 6 {
			t.Errorf("in the last 10 s there are %d samples", n)
		}
	}
}

// TestRestarts: the time between two processes is a gap, and the CPU of the next one is not compared with that of the
// one before. Samples older than an hour are gone.
func TestRestarts(t *testing.T) {
	t.Parallel()
	s := NewSamples()
	now := s.began
	for i := range 10 {
		now = now.Add(time.Second)
		s.Add(use(7, 100+float64(i), 1<<20), now)
	}
	first := len(s.Since("worker:0", 0, now).GetUnixMillis())
	now = now.Add(time.Minute)
	for i := range 11 {
		s.Add(use(8, 0.5*float64(i), 1<<30), now)
		now = now.Add(time.Second)
	}
	got := s.Since("worker:0", 0, now)
	sound(t, got)
	if n := len(got.GetUnixMillis()); first != 4 || n != 9 {
		t.Fatalf("%d, then %d samples", first, n)
	}
	if gap := got.GetUnixMillis()[4] - got.GetUnixMillis()[3]; gap < 60_000 {
		t.Errorf("the gap has %d ms", gap)
	}
	for i, want := range []float64{100, 100, 100, 100, 50, 50, 50, 50, 50} {
		if cpu := got.GetUsage()[i].GetCpuPercent(); cpu != want {
			t.Errorf("sample %d has %v %%", i, cpu)
		}
	}
	if got := s.Since("worker:0", 0, now.Add(SamplesKept)); got != nil {
		t.Errorf("after an hour there is %v", got)
	}
	if got := s.Since("worker:1", 0, now); got != nil {
		t.Errorf("a task without heartbeats has %v", got)
	}
}

// TestGPUs: a task's GPUs are in its samples from the first heartbeat with them; what a heartbeat may hold fits.
func TestGPUs(t *testing.T) {
	t.Parallel()
	s := NewSamples()
	now := s.began
	for i := range 9 {
		var gpus *GPUs
		if i > 4 {
			gpus = SumGPUs([]*clusterpb.GPU{{Utilization: 50, UsedBytes: 3 << 30}, {Utilization: 1 << 20, UsedBytes: 1 << 30}})
		}
		u := use(7, math.NaN(), math.MaxUint64)
		gpus.AddTo(u)
		s.Add(u, now)
		now = now.Add(2 * time.Second)
	}
	got := s.Since("worker:0", 0, now)
	sound(t, got)
	if len(got.GetUsage()) != 8 {
		t.Fatalf("there are %d samples", len(got.GetUsage()))
	}
	for i, want := range map[int][2]float64{3: {0, 0}, 7: {75, 4 << 30}} {
		if u := got.GetUsage()[i]; u.GpuPercent == nil || float64(u.GetGpuPercent()) != want[0] ||
			float64(u.GetGpuUsedBytes()) != want[1] {
			t.Errorf("sample %d is %v", i, u)
		}
	}
	if odd := got.GetUsage()[5]; odd.GetCpuPercent() != 0 || odd.GetRssBytes() < 1<<41 {
		t.Errorf("an odd sample is %v", odd)
	}
	if SumGPUs(nil) != nil {
		t.Error("no GPU is one")
	}
}

// TestMemory: an hour of 500 tasks with GPUs takes less than 20 MB, so one of 5,000 less than 200 MB.
func TestMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s := NewSamples()
	gpus := &GPUs{Percent: 50, Bytes: 1 << 30}
	for task := range 500 {
		u := use(1, 0, 1<<30)
		u.Task = fmt.Sprint("worker:", task)
		gpus.AddTo(u)
		for i := range perTask + 2 {
			s.Add(u, s.began.Add(time.Duration(i)*SampleEvery))
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	used := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if used > 20e6 {
		t.Errorf("it takes %d MB", used/1e6)
	}
	if n := len(s.Since("worker:499", 0, s.began.Add(SamplesKept)).GetUnixMillis()); n < perTask-2 {
		t.Errorf("it has %d samples", n)
	}
	t.Logf("500 tasks: %d MB", used/1e6)
}

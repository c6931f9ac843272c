package panel

import (
	"math"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A sample is kept each SampleEvery, and for SamplesKept.
const (
	SampleEvery = 2 * time.Second
	SamplesKept = time.Hour
	perTask     = int(SamplesKept / SampleEvery)
	early       = SampleEvery / 8 // heartbeats are not exactly periodic
)

// GPUs is the use of a task's GPUs.
type GPUs struct {
	Percent float32 // mean
	Bytes   uint64  // sum
	Each    []*clusterpb.GPU
}

// SumGPUs returns the use of the GPUs of a heartbeat; nil if it has none.
func SumGPUs(gpus []*clusterpb.GPU) *GPUs {
	if len(gpus) == 0 {
		return nil
	}
	all := GPUs{Each: gpus}
	for _, g := range gpus {
		all.Percent += float32(max(0, min(g.GetUtilization(), 100)))
		all.Bytes += g.GetUsedBytes()
	}
	all.Percent /= float32(len(gpus))
	return &all
}

// Samples keeps the samples of all tasks. Its methods are safe for concurrent use.
type Samples struct {
	began time.Time
	mu    sync.Mutex
	tasks map[string]*ring
}

// NewSamples returns an empty Samples.
func NewSamples() *Samples { return &Samples{began: time.Now(), tasks: map[string]*ring{}} }

// sample is stored in units that fit.
type sample struct {
	at  uint32  // in clock units after began
	cpu float32 // percent
	rss uint32  // in memory units
}

type gpuSample struct {
	percent float32
	used    uint32 // in memory units
}

// Units of samples: 497 days and 4 TiB fit.
const (
	clockUnit  = 10 * time.Millisecond
	memoryUnit = 1 << 10
)

func units(bytes uint64) uint32 { return uint32(min(bytes/memoryUnit, math.MaxUint32)) }

// ring has the samples of a task. Its process is measured from heartbeat to heartbeat.
type ring struct {
	samples []sample
	gpus    []gpuSample // as many as samples, or none
	first   int         // index of the oldest one, once perTask are kept

	pid int32 // of the process last seen
	cpu float64
	at  time.Time // of the last sample, or of the process's first heartbeat
	due time.Time // when the next sample is taken
}

// Add adds a heartbeat's usage of a task. gpus is nil for a task without GPUs. The first heartbeat of a process has no
// sample: its use of the CPU is measured from then on.
func (s *Samples) Add(u *clusterpb.TaskUsage, gpus *GPUs, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tasks[u.GetTask()]
	if r == nil {
		r = &ring{}
		s.tasks[u.GetTask()] = r
	}
	if r.pid != u.GetPid() {
		r.pid, r.cpu, r.at, r.due = u.GetPid(), u.GetCpuSeconds(), now, now.Add(SampleEvery)
		return
	}
	late := now.Sub(r.due)
	if late < -early {
		return
	}
	percent := 100 * (u.GetCpuSeconds() - r.cpu) / now.Sub(r.at).Seconds()
	if !(percent > 0 && percent <= math.MaxFloat32) {
		percent = 0
	}
	r.add(sample{uint32(now.Sub(s.began) / clockUnit), float32(percent), units(u.GetRssBytes())}, gpus)
	r.cpu, r.at = u.GetCpuSeconds(), now
	if r.due = r.due.Add(SampleEvery); late > SampleEvery/2 {
		r.due = now.Add(SampleEvery)
	}
}

// add adds a sample, in place of the oldest one once perTask are kept.
func (r *ring) add(s sample, g *GPUs) {
	if g != nil && r.gpus == nil {
		r.gpus = make([]gpuSample, len(r.samples), cap(r.samples))
	}
	var used gpuSample
	if g != nil {
		used = gpuSample{g.Percent, units(g.Bytes)}
	}
	if len(r.samples) == perTask {
		r.samples[r.first] = s
		if r.gpus != nil {
			r.gpus[r.first] = used
		}
		r.first = (r.first + 1) % perTask
		return
	}
	r.samples = appendOne(r.samples, s)
	if r.gpus != nil {
		r.gpus = appendOne(r.gpus, used)
	}
}

// appendOne is append with capacities up to perTask.
func appendOne[T any](all []T, one T) []T {
	if len(all) == cap(all) {
		larger := make([]T, len(all), min(max(64, 2*cap(all)), perTask))
		copy(larger, all)
		all = larger
	}
	return append(all, one)
}

// Since returns a task's samples of the last hour that were taken after a time, oldest first; nil if there are none.
func (s *Samples) Since(task string, unixMillis int64, now time.Time) *clusterpb.TaskSamples {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tasks[task]
	if r == nil {
		return nil
	}
	after := max(unixMillis, now.Add(-SamplesKept).UnixMilli())
	out := &clusterpb.TaskSamples{Task: task}
	for i := range r.samples {
		k := (r.first + i) % len(r.samples)
		at := s.began.Add(time.Duration(r.samples[k].at) * clockUnit).UnixMilli()
		if at <= after {
			continue
		}
		out.UnixMillis = append(out.UnixMillis, at)
		out.CpuPercent = append(out.CpuPercent, r.samples[k].cpu)
		out.RssBytes = append(out.RssBytes, uint64(r.samples[k].rss)*memoryUnit)
		if r.gpus != nil {
			out.GpuPercent = append(out.GpuPercent, r.gpus[k].percent)
			out.GpuBytes = append(out.GpuBytes, uint64(r.gpus[k].used)*memoryUnit)
		}
	}
	if len(out.UnixMillis) == 0 {
		return nil
	}
	return out
}

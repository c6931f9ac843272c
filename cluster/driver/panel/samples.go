package panel

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// A sample is kept each SampleEvery, and for SamplesKept.
const (
	SampleEvery = 2 * time.Second
	SamplesKept = time.Hour
	perTask     = int(SamplesKept / SampleEvery)
	perBlock    = 100
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

// AddTo adds the use of the GPUs to a heartbeat's usage of a task. g may be nil.
func (g *GPUs) AddTo(u *clusterpb.TaskUsage) {
	if g == nil {
		return
	}
	u.Usage = cmp.Or(u.GetUsage(), &clusterpb.Usage{})
	u.Usage.GpuPercent, u.Usage.GpuUsedBytes = &g.Percent, &g.Bytes
}

// Samples keeps the samples of all tasks. Its methods are safe for concurrent use.
type Samples struct {
	began time.Time
	mu    sync.Mutex
	tasks map[string]*ring
}

// NewSamples returns an empty Samples.
func NewSamples() *Samples { return &Samples{began: time.Now(), tasks: map[string]*ring{}} }

// clockUnit is the unit of the times of samples: 497 days fit.
const clockUnit = 10 * time.Millisecond

// ring has the samples of a task. Its process is measured from heartbeat to heartbeat.
type ring struct {
	names  []string   // the fields of Usage that a sample has had
	blocks [][]uint32 // rows of samples: the time in clock units after began, then a float32 for each name
	count  int        // of samples
	first  int        // index of the oldest one, once perTask are kept

	pid int32 // of the process last seen
	cpu float64
	at  time.Time // of the last sample, or of the process's first heartbeat
	due time.Time // when the next sample is taken
}

// Add adds a heartbeat's usage of a task. The first heartbeat of a process has no sample: its use of the CPU is
// measured from then on.
func (s *Samples) Add(u *clusterpb.TaskUsage, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.tasks[u.GetTask()]
	if r == nil {
		r = &ring{}
		s.tasks[u.GetTask()] = r
	}
	seconds := u.GetUsage().GetCpuSeconds()
	if r.pid != u.GetPid() {
		r.pid, r.cpu, r.at, r.due = u.GetPid(), seconds, now, now.Add(SampleEvery)
		return
	}
	late := now.Sub(r.due)
	if late < -early {
		return
	}
	percent := 100 * (seconds - r.cpu) / now.Sub(r.at).Seconds()
	if !(percent > 0 && percent <= math.MaxFloat32) {
		percent = 0
	}
	usage := cmp.Or(proto.CloneOf(u.GetUsage()), &clusterpb.Usage{})
	usage.CpuPercent, usage.CpuSeconds = percent, nil
	r.add(uint32(now.Sub(s.began)/clockUnit), usage.Values())
	r.cpu, r.at = seconds, now
	if r.due = r.due.Add(SampleEvery); late > SampleEvery/2 {
		r.due = now.Add(SampleEvery)
	}
}

// add adds a sample, in place of the oldest one once perTask are kept.
func (r *ring) add(at uint32, values map[string]float64) {
	for name := range values {
		if !slices.Contains(r.names, name) {
			r.widen(name)
		}
	}
	i := r.count
	if r.count == perTask {
		i = r.first
		r.first = (r.first + 1) % perTask
	} else {
		if r.count%perBlock == 0 {
			r.blocks = append(r.blocks, make([]uint32, perBlock*(1+len(r.names))))
		}
		r.count++
	}
	row := r.row(i)
	row[0] = at
	for k, name := range r.names {
		row[1+k] = math.Float32bits(float32(values[name]))
	}
}

// row returns the row of a sample.
func (r *ring) row(i int) []uint32 {
	width := 1 + len(r.names)
	from := i % perBlock * width
	return r.blocks[i/perBlock][from : from+width]
}

// widen adds a name, of which earlier samples have 0.
func (r *ring) widen(name string) {
	width := 1 + len(r.names)
	r.names = append(r.names, name)
	for i, old := range r.blocks {
		block := make([]uint32, 0, perBlock*(width+1))
		for row := range slices.Chunk(old, width) {
			block = append(append(block, row...), 0)
		}
		r.blocks[i] = block
	}
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
	for i := range r.count {
		row := r.row((r.first + i) % r.count)
		at := s.began.Add(time.Duration(row[0]) * clockUnit).UnixMilli()
		if at <= after {
			continue
		}
		values := make(map[string]float64, len(r.names))
		for k, name := range r.names {
			values[name] = float64(math.Float32frombits(row[1+k]))
		}
		out.UnixMillis, out.Usage = append(out.UnixMillis, at), append(out.Usage, clusterpb.UsageOf(values))
	}
	if len(out.UnixMillis) == 0 {
		return nil
	}
	return out
}

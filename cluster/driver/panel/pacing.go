package panel

import (
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Limits of the messages to a watcher.
const (
	PerSecond     = 5                      // messages in any second
	ProgressEvery = 500 * time.Millisecond // between two messages because of steps, metrics and numbers of lines
	UsageEvery    = 2 * time.Second        // between two messages because of the use of CPU, memory and GPUs
	apart         = 25 * time.Millisecond  // between two messages, for each message of the last second
)

// Pacer decides for one watcher. Progress and usage change all the time: they leave room for other changes, which are
// sent at once.
type Pacer struct {
	last   *clusterpb.ClusterStatus // the status sent last; nil: none
	at     time.Time                // when
	recent []time.Time              // messages of the last second
}

// Offer returns whether a status is sent now. The caller does not change it later, and has waited for Rest.
func (p *Pacer) Offer(st *clusterpb.ClusterStatus, now time.Time) bool {
	if p.last != nil {
		since := now.Sub(p.at)
		compared := parts{progress: since >= ProgressEvery, usage: since >= UsageEvery}
		if proto.Equal(compared.of(p.last), compared.of(st)) {
			return false
		}
	}
	p.last, p.at = st, now
	p.recent = append(p.recent, now)
	return true
}

// Rest returns how long no message may be sent.
func (p *Pacer) Rest(now time.Time) time.Duration {
	p.recent = slices.DeleteFunc(p.recent, func(t time.Time) bool { return now.Sub(t) >= time.Second })
	if len(p.recent) >= PerSecond {
		return time.Second - now.Sub(p.recent[0])
	}
	return max(0, time.Duration(len(p.recent))*apart-now.Sub(p.at))
}

// parts of a status are compared: the state always, durations never.
type parts struct{ progress, usage bool }

// of returns a copy of a status with these parts only. It may share messages with the status.
func (p parts) of(st *clusterpb.ClusterStatus) *clusterpb.ClusterStatus {
	c := &clusterpb.ClusterStatus{}
	st.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch f.Name() {
		case "request", "roles": // do not change
		case "idle_left_millis":
			c.IdleLeftMillis = 1 // the timer is running
		case "executors":
			for _, e := range st.GetExecutors() {
				c.Executors = append(c.Executors, p.executor(e))
			}
		case "run":
			c.Run = p.run(st.GetRun())
		default:
			c.ProtoReflect().Set(f, v)
		}
		return true
	})
	return c
}

func (p parts) executor(e *clusterpb.ExecutorStatus) *clusterpb.ExecutorStatus {
	e = proto.CloneOf(e)
	if e.SilentSeconds > 0 {
		e.SilentSeconds = 1
	}
	if !p.usage {
		e.GpuPercent, e.GpuUsedBytes = 0, 0
	}
	return e
}

func (p parts) run(r *clusterpb.RunStatus) *clusterpb.RunStatus {
	r = proto.CloneOf(r)
	r.Seconds = 0
	if !p.progress {
		r.Progress, r.Series, r.StepsPerSecond, r.Lines = nil, nil, 0, 0
	}
	for _, t := range r.GetTasks() {
		t.StepAgeSeconds = 0
		if !p.progress {
			t.Step, t.OwnStepSeconds, t.Slowdown, t.StepsPerSecond, t.Loss = 0, 0, 0, 0, nil
		}
		if !p.usage {
			t.Usage = nil
		}
	}
	return r
}

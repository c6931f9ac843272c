// Package snapshot takes snapshots of a task: the stacks of its Python threads, and the states of
// its processes and threads from /proc.
//
// A thread of the task takes the stacks (tfcluster/stacks.py); it answers questions on the control socket. It does
// not answer while another thread holds Python's GIL in native code. Then the agent sends a signal to the answering
// thread. The signal's handler is faulthandler: it writes the stacks of all threads to a memory file, without the
// GIL. Only the answering thread receives the signal, so no system call of the program is interrupted.
//
// The signal is not sent before the task has reported that the handler is installed, nor if /proc shows that it is
// not: its default action ends the process. The signal is not sent while threads compete for the GIL or for a core,
// either: one of them may run Python, and faulthandler, which reads frames while that thread changes them, may crash
// the process.
package snapshot

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Times of a snapshot.
const (
	answerWait = 500 * time.Millisecond // for the answer of the task's thread
	busyWait   = 2 * time.Second        // for the same, while threads compete
	poll       = 5 * time.Millisecond   // between two readings of a thread's state
	signalWait = time.Second            // for faulthandler
	cpuWindow  = 100 * time.Millisecond // in which the use of the CPU is measured, at least
)

// Why there are no stacks.
const (
	isStopped      = "it is stopped (a SIGSTOP, or a debugger)"
	endedMeanwhile = "its program has ended meanwhile"
)

// Sampler takes snapshots of one task. Its methods may be called from any goroutine.
type Sampler struct {
	ask     func(question int32) bool // writes a question to the task's control socket
	answers chan *Answer              // cap 1: the last answer
	turn    chan struct{}             // cap 1: held while a snapshot is taken
	handler handler

	// used by the goroutine that holds turn
	last    int32 // number of the last question
	pending bool  // the last question has no answer: another one would only fill the socket
}

// NewSampler returns a Sampler. ask writes a question to the task's control socket and reports whether that
// succeeded; nil: the program is not Python.
func NewSampler(ask func(question int32) bool) *Sampler {
	return &Sampler{ask: ask, answers: make(chan *Answer, 1), turn: make(chan struct{}, 1)}
}

// Register records that the task's process has installed faulthandler's handler.
func (s *Sampler) Register(pid int, r Registration) error { return s.handler.register(pid, r) }

// Answered passes an answer of the task to the goroutine that waits for it.
func (s *Sampler) Answered(a Answer) {
	if !a.Registered {
		s.handler.close()
	}
	select {
	case <-s.answers: // an older answer
	default:
	}
	select {
	case s.answers <- &a:
	default:
	}
}

// Close closes the file that Register has opened. It is called after the end of the task.
func (s *Sampler) Close() { s.handler.close() }

// Take takes a snapshot of a process and its descendants within the time of ctx: pid, time, stacks and states. If
// that is not possible, pid is 0 and error has the reason: the process has ended, or an earlier snapshot is still
// being taken.
func (s *Sampler) Take(ctx context.Context, pid int) *clusterpb.Snapshot {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return &clusterpb.Snapshot{Error: "an earlier snapshot of it is still being taken"}
	}
	first, ok := read(pid)
	if !ok {
		return &clusterpb.Snapshot{Error: "its program has ended"}
	}
	snapshot := &clusterpb.Snapshot{Pid: int32(pid), UnixNano: time.Now().UnixNano(), Source: clusterpb.FromProc}
	when := first
	switch {
	case s.ask == nil:
		snapshot.Error = "its program is not Python"
	case first.isStopped():
		snapshot.Error = isStopped
	default:
		var held bool
		if snapshot.Error, held = s.fromPython(ctx, first, snapshot); snapshot.Error == "" {
			break
		}
		snapshot.UnixNano = time.Now().UnixNano()
		if when = first.again(); len(when.threads) == 0 {
			return &clusterpb.Snapshot{Error: endedMeanwhile}
		}
		if when.isStopped() {
			snapshot.Error = isStopped
		} else if held {
			if err := s.handler.stacks(ctx, snapshot); err != nil {
				snapshot.Error += ", and " + err.Error()
			}
		}
	}
	select {
	case <-time.After(time.Until(first.at.Add(cpuWindow))):
	case <-ctx.Done():
	}
	last := first.again()
	if len(last.threads) == 0 {
		return &clusterpb.Snapshot{Error: endedMeanwhile}
	}
	describe(snapshot, when, first, last)
	fit(snapshot)
	return snapshot
}

// fromPython adds the stacks that the task's own thread takes. Otherwise it returns the reason, and reports whether a
// thread seems to hold the GIL in native code.
func (s *Sampler) fromPython(ctx context.Context, first reading,
	snapshot *clusterpb.Snapshot,
) (problem string, held bool) {
	select {
	case <-s.answers: // to a question of a snapshot that has ended
		s.pending = false
	default:
	}
	if !s.pending {
		s.last++
		if s.pending = s.ask(s.last); !s.pending {
			return "its Python does not read its control socket any more", false
		}
	}
	began := time.Now()
	for patience := time.After(answerWait); ; patience = time.After(answerWait / 5) {
		select {
		case a := <-s.answers:
			s.pending = false
			snapshot.Threads, snapshot.ThreadsLeftOut = a.stacks()
			snapshot.Source = clusterpb.FromPython
			return "", false
		case <-ctx.Done():
			return "its Python did not answer in time", false
		case <-patience:
			switch competes := first.competes(); {
			case len(s.answers) > 0:
			case !competes:
				return fmt.Sprintf("Python did not answer within %s, as when a thread holds the GIL in native code",
					answerWait), true
			case time.Since(began) >= busyWait:
				return fmt.Sprintf("Python did not answer within %s: its threads compete for the GIL, or for a core",
					busyWait), false
			}
		}
	}
}

// Package snapshot takes snapshots of a task: the stacks of its Python threads, and the states of
// its processes and threads from /proc.
//
// The stacks are from a thread of the task (tfcluster/stacks.py), which answers questions on the
// control socket. If it does not answer because another thread holds Python's GIL in native
// code, the agent sends a signal to that thread, whose handler is faulthandler's: it writes the
// stacks of all threads to a memory file without the GIL. The signal is sent to that thread only,
// so no system call of the program is interrupted. It is not sent before the task has said that
// the handler is installed, nor if /proc says that it is not: its default action ends the process.
// Nor is it sent while threads compete for the GIL or for a core: then one of them may run Python,
// and faulthandler, which reads frames that change meanwhile, may crash the process.
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
	busyWait   = 2 * time.Second        // for that, while threads compete
	poll       = 5 * time.Millisecond   // between looks at a thread's state
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
	answers chan *Answer              // cap 1: the last one
	turn    chan struct{}             // cap 1: held by the one that takes a snapshot
	handler handler

	// of the one that has the turn
	last    int32 // number of the last question
	pending bool  // it has no answer yet: another one would only fill the socket
}

// NewSampler returns a Sampler. ask writes a question to the task's control socket and returns
// false if that fails; nil: the program is not Python.
func NewSampler(ask func(question int32) bool) *Sampler {
	return &Sampler{ask: ask, answers: make(chan *Answer, 1), turn: make(chan struct{}, 1)}
}

// Register records that the task's process has installed faulthandler's handler.
func (s *Sampler) Register(pid int, r Registration) error { return s.handler.register(pid, r) }

// Answered passes an answer of the task to the one that waits for it.
func (s *Sampler) Answered(a Answer) {
	if !a.Registered {
		s.handler.close()
	}
	select {
	case <-s.answers: // an older one
	default:
	}
	select {
	case s.answers <- &a:
	default:
	}
}

// Close releases what Register has opened. The task has ended.
func (s *Sampler) Close() { s.handler.close() }

// Take takes a snapshot of a process and its descendants within the time of ctx: its pid, time,
// stacks and states. pid is 0 and error says why if the process has ended.
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

// fromPython adds the stacks that the task's own thread takes; otherwise it returns why there are
// none, and whether a thread holds the GIL in native code, as far as that is seen.
func (s *Sampler) fromPython(ctx context.Context, first reading, snapshot *clusterpb.Snapshot) (problem string, held bool) {
	select {
	case <-s.answers: // to a question whose asker has gone
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
				return fmt.Sprintf("Python did not answer within %s, as when a thread holds the GIL in native code", answerWait), true
			case time.Since(began) >= busyWait:
				return fmt.Sprintf("Python did not answer within %s: its threads compete for the GIL, or for a core", busyWait), false
			}
		}
	}
}

package transport

import (
	"errors"
	"runtime"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// await polls the completion queue until a condition holds, or the queue cannot be polled. Caller holds mu.
func (r *remote) await(until func() bool) {
	for !until() && !r.broken {
		if r.polling {
			r.changed.Wait()
			continue
		}
		r.polling = true
		r.mu.Unlock()
		got, err := r.poll()
		r.mu.Lock()
		r.polling = false
		r.polled(got, err)
		r.changed.Broadcast()
	}
}

// awaitFor is await with a limit. Caller holds mu.
func (r *remote) awaitFor(limit time.Duration, until func() bool) {
	late, over := false, false
	timer := time.AfterFunc(limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if late = true; !over { // else the queue may have been closed
			r.wake()
		}
	})
	defer timer.Stop()
	r.await(func() bool { return late || until() })
	over = true
}

// wake makes every call of await check its condition again. Caller holds mu.
func (r *remote) wake() {
	r.changed.Broadcast()
	r.queue.Wake()
}

// sweep notes all completions that are in the queue. Caller holds mu.
func (r *remote) sweep() {
	for r.polling { // it has been woken
		r.changed.Wait()
	}
	for !r.broken {
		var into [16]verbs.Completion
		got, err := r.queue.Poll(into[:0])
		r.polled(got, err)
		if len(got) == 0 {
			return
		}
	}
}

// polled notes what poll has returned. Caller holds mu.
func (r *remote) polled(got []verbs.Completion, err error) {
	for _, c := range got {
		r.handle(c)
	}
	if err != nil && !errors.Is(err, verbs.ErrWoken) {
		r.broken = true
		r.fail(err)
	}
}

// poll returns the next completions. It spins for a time in which an answer of a peer that is not late arrives, because to
// arm the queue and to wait for an event costs several system calls, and the device an interrupt. It spins no longer,
// because the tasks need the core while a peer is late.
func (r *remote) poll() ([]verbs.Completion, error) {
	into := make([]verbs.Completion, 0, 16)
	armed := false
	for began := time.Now(); ; {
		got, err := r.queue.Poll(into)
		switch {
		case len(got) > 0 || err != nil:
			return got, err
		case !armed && time.Since(began) < r.device.settings.Spin:
			runtime.Gosched()
		case !armed:
			if err := r.queue.Arm(); err != nil {
				return nil, err
			}
			armed = true
		default: // nothing came between the last poll and arming
			if err := r.queue.Wait(); err != nil {
				return nil, err
			}
			armed, began = false, time.Now()
		}
	}
}

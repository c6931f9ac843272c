package transport

import (
	"errors"
	"runtime"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// await polls the completion queue until a condition is true, or the queue cannot be polled. Caller holds mu.
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

// awaitFor is await with a time limit. Caller holds mu.
func (r *remote) awaitFor(limit time.Duration, until func() bool) {
	late, over := false, false
	timer := time.AfterFunc(limit, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if late = true; !over { // otherwise the queue may have been closed
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

// sweep handles all completions that are in the queue. Caller holds mu.
func (r *remote) sweep() {
	for r.polling { // the polling goroutine has been woken
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

// polled handles the result of poll. Caller holds mu.
func (r *remote) polled(got []verbs.Completion, err error) {
	for _, c := range got {
		r.handle(c)
	}
	if err != nil && !errors.Is(err, verbs.ErrWoken) {
		r.broken = true
		r.fail(err)
	}
}

// poll returns the next completions. It first polls in a loop (spins), for as long as the answer of a peer takes that
// is not late: arming the queue and waiting for an event cost several system calls, and an interrupt of the device.
// It does not spin longer, because the tasks need the core while a peer is late.
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

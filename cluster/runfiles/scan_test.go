package runfiles

import (
	"strings"
	"testing"
	"time"
)

// TestAFileThatNeverSettles: a file that changes oftener than it settles is sent nevertheless, as it
// is at a moment of rest; one that does not rest holds up no other.
func TestAFileThatNeverSettles(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	const weights, busy = "run-001/checkpoints/w", "run-001/checkpoints/busy"
	for n := range 3 { // it changes between any two rounds
		e.write("checkpoints/w", strings.Repeat("x", n+1))
		e.round(false)
	}
	b.want()
	late := func(name string) {
		version := e.seen[name]
		version.unsent = time.Now().Add(-maxUnsent)
		e.seen[name] = version
	}
	e.write("checkpoints/w", "at rest")
	e.write("checkpoints/busy", "0")
	e.round(false)
	late(weights)
	late(busy)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			case <-time.After(lull / 20):
				e.write("checkpoints/busy", strings.Repeat("b", n%100))
			}
		}
	}()
	e.write("checkpoints/w", "changed again")
	e.round(false)
	close(stop)
	<-stopped
	b.want(weights)
	if got := read(t, b.disk.dir, weights); got != "changed again" {
		t.Errorf("it is %q", got)
	}
	e.write("checkpoints/w", "once more")
	e.round(false) // what was sent begins anew to wait
	if got := read(t, b.disk.dir, weights); got != "changed again" {
		t.Errorf("right behind it came %q", got)
	}
}

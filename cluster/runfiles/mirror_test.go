package runfiles

import (
	"errors"
	"sync"
	"testing"
)

// TestMirrorWhileFilesChange: while the chief keeps saving, after each Pull the local state
// file refers only to existing files, and at the end the folder equals the driver's.
func TestMirrorWhileFilesChange(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	chief, evaluator := b.executor("0"), b.executor("1")
	m := NewMirror(evaluator.Sender, 1, "checkpoints")
	here := &tricky{Local: NewLocal(evaluator.dir), t: t}
	over := make(chan struct{})
	var saving sync.WaitGroup
	saving.Go(func() {
		defer close(over)
		for n := 1; n <= 30; n++ {
			chief.save(n)
			if err := chief.Sync(chief.ctx, false, func() {}); err != nil {
				t.Error(err)
			}
		}
	})
	defer saving.Wait()
	for last := false; !last; {
		select {
		case <-over:
			last = true
		default:
		}
		if err := m.Pull(evaluator.ctx); err != nil && (last || !errors.Is(err, errMoved)) {
			t.Fatal(err)
		}
		here.consistent()
	}
	for _, name := range b.names() {
		if got, want := read(t, evaluator.dir, name), read(t, b.disk.dir, name); got != want {
			t.Errorf("%s is %.20q with the evaluator, %.20q at the driver", name, got, want)
		}
	}
}

package coordinator

import (
	"context"
	"testing"
)

// TestCallThatRan: a call that the loop has run as its last one is no error: its caller would undo what has happened.
func TestCallThatRan(t *testing.T) {
	t.Parallel()
	for range 200 {
		l := &eventLoop{calls: make(chan func()), done: make(chan struct{})}
		go func() {
			(<-l.calls)()
			close(l.done)
		}()
		if err := l.call(context.Background(), func() {}); err != nil {
			t.Fatal(err)
		}
	}
}

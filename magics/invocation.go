package magics

import "context"

// invocation is one command at work.
type invocation struct {
	*Command
	session *State
	table   *Table
	out     Output
	py      Python
}

// verbFunc does one verb.
type verbFunc func(*invocation, context.Context) (Value, error)

// breakable is a context that an interrupt of the cell ends. cancel waits for its
// watcher, so that the next interrupt is somebody else's.
func breakable(ctx context.Context, out Output) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-out.Interrupts():
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(); <-gone }
}

package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// invocation is one command at work.
type invocation struct {
	*command.Command
	session *session.State
	table   *command.Table
	out     render.Output
	py      bridge.Python
}

// verbFunc does one verb.
type verbFunc func(*invocation, context.Context) (result.Value, error)

// breakable is a context that an interrupt of the cell ends. cancel waits for its
// watcher, so that the next interrupt is somebody else's.
func breakable(ctx context.Context, out render.Output) (_ context.Context, cancel func()) {
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

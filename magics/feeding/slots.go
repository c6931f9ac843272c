package feeding

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/magics/bridge"
)

// slotsEvery is the time between two calls of feed_waits.
const slotsEvery = 2 * time.Second

// askSlots shows whether the jobs that read the source wait for a slot of Spark, until ctx ends.
func (f *Client) askSlots(ctx context.Context) {
	defer f.shown.waiting.set("")
	each := time.NewTicker(slotsEvery)
	defer each.Stop()
	for {
		select {
		case <-each.C:
		case <-ctx.Done():
			return
		}
		var what string
		if err := bridge.Ask(ctx, f.py, bridge.GlanceTimeout, "feed_waits", map[string]any{"id": f.id}, &what); err != nil {
			continue // the text is for display only; feed_wait returns why Python does not answer
		}
		f.shown.waiting.set(what)
	}
}

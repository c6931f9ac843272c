package verbs

import (
	"context"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/magics/feeding"
	"github.com/tfcluster/tfcluster/magics/render"
)

// stderrOnly is an output of which only lines for stderr are written.
type stderrOnly struct {
	render.Output
	text strings.Builder
}

func (o *stderrOnly) Stderr(text string)          { o.text.WriteString(text) }
func (o *stderrOnly) Interrupts() <-chan struct{} { return nil }

// TestSilentFeed: a run that has ended well is not called failed because Python does not give the last numbers of its feed.
func TestSilentFeed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // instead of waiting for session.AnswerTimeout
	out := &stderrOnly{}
	inv := &invocation{out: out, feed: &feeding.Feed{}} // it never ends
	if err := inv.awaitFeed(ctx); err != nil || !strings.Contains(out.text.String(), "has not ended its feed") {
		t.Errorf("error %v, text %q", err, out.text.String())
	}
}

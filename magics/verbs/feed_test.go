package verbs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/feeding"
	"github.com/tfcluster/tfcluster/magics/render"
)

// stderrOnly is an output of which only lines for stderr are written.
type stderrOnly struct {
	render.Output
	text strings.Builder
}

func (o *stderrOnly) Stderr(text string) { o.text.WriteString(text) }

// TestSilentFeed: a run that has ended well is not called failed because Python does not give the last
// numbers of its feed.
func TestSilentFeed(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"train", "inference"} {
		out := &stderrOnly{}
		// It never ends.
		inv := &invocation{out: out, feed: &feeding.Client{}, Command: &command.Command{Verb: &command.Verb{Name: name}}}
		err := inv.awaitFeed(t.Context(), time.Millisecond)
		if needed := name == "inference"; needed != (err != nil) ||
			needed == strings.Contains(out.text.String(), "has not ended its feed") {
			t.Errorf("%s: error %v, text %q", name, err, out.text.String())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inv := &invocation{out: &stderrOnly{}, feed: &feeding.Client{}}
	if err := inv.awaitFeed(ctx, time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("after the command's end: %v", err)
	}
}

package protocol

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
)

// TestExplainSilence: a ResourceManager that hangs is unreachable; a caller's own deadline is not.
func TestExplainSilence(t *testing.T) {
	t.Parallel()
	hung := fmt.Errorf("%w from rm:8030 for 5s: %w", ipc.ErrUnreachable, context.DeadlineExceeded)
	if err := explain("call", &ipc.NegotiationError{}); errors.Is(err, ErrUnreachable) {
		t.Errorf("a server that answered is unreachable: %v", err)
	}
	if err := explain("call", hung); !errors.Is(err, ErrUnreachable) {
		t.Error(err)
	}
	unusableAnswer := fmt.Errorf("%w to rm:8030 for 5s: %w", ipc.ErrUnreachable, &ipc.AnswerError{Err: io.EOF})
	if err := explain("call", unusableAnswer); !errors.Is(err, ErrUnreachable) ||
		strings.Contains(err.Error(), "YARN unreachable") {
		t.Errorf("a server whose answer cannot be used: %v", err)
	}
	for _, own := range []error{context.DeadlineExceeded, context.Canceled} {
		if err := explain("call", fmt.Errorf("allocate: %w", own)); errors.Is(err, ErrUnreachable) || !errors.Is(err, own) {
			t.Error(err)
		}
	}
}

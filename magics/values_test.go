package magics

import (
	"context"
	"errors"
	"testing"

	"github.com/tfcluster/tfcluster/magics/result"
)

// pythonFunc answers every call with an error.
type pythonFunc func(ctx context.Context) error

func (f pythonFunc) Call(ctx context.Context, _ string, _, _ any) error { return f(ctx) }

// TestInterruptExpansion: an interrupt ends the wait for the value of a name or expression.
func TestInterruptExpansion(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"start f {slow()}", "start f $slow", "status {slow()}"} {
		out := newRecord()
		_, err := runCode(t.Context(), newTestSession(t, newFakeDrivers(t), ""), "%tfcluster "+line, out, pythonFunc(func(ctx context.Context) error {
			out.interrupts <- struct{}{}
			<-ctx.Done() // as a Python that is busy
			return ctx.Err()
		}))
		if _, ok := errors.AsType[*result.Interrupted](err); !ok {
			t.Errorf("%s ends with %v, want an interrupt", line, err)
		}
	}
}

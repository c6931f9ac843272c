package magics

import (
	"context"
	"errors"
	"testing"

	"github.com/tfcluster/tfcluster/magics/bridge"
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
		_, err := runCode(t.Context(), newTestSession(t, newFakeDrivers(t), ""), "%tfcluster "+
			line, out, pythonFunc(func(ctx context.Context) error {
			out.interrupts <- struct{}{}
			<-ctx.Done() // as a Python that is busy
			return ctx.Err()
		}))
		if _, ok := errors.AsType[*result.Interrupted](err); !ok {
			t.Errorf("%s ends with %v, want an interrupt", line, err)
		}
	}
}

// TestExpandError: an exception is of the name that Python says, and otherwise of none in particular.
func TestExpandError(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"$b: ValueError: no text": &bridge.PythonError{
			Name: "UsageError", Text: "$b: ValueError: no text",
		},
		"$a, $b: KeyboardInterrupt":                               &bridge.PythonError{Text: "KeyboardInterrupt"},
		"find the value of $a, $b: " + bridge.ErrNoPython.Error(): bridge.ErrNoPython,
	} {
		_, got := values{pythonFunc(func(context.Context) error { return err })}.Expand(t.Context(), []string{"a", "b"})
		if got == nil || got.Error() != want {
			t.Errorf("the error is %v, want %s", got, want)
		}
	}
}

package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Python reaches the notebook's objects. A nil Python, and one whose interpreter
// is dead or busy with something that holds it, means that names cannot be looked
// up; verbs that need none go on.
type Python interface {
	// Call asks the shim for fn and decodes its answer into reply. The error is a
	// *PythonError when Python answered with an exception, ErrNoPython when nobody
	// answers.
	Call(ctx context.Context, fn string, args, reply any) error
}

// Lasting returns a Python that can be asked after the command that py belongs to has ended: the notebook's objects,
// which the shim serves for as long as its process lives. Names of the caller's frame are known to py alone.
func Lasting(py Python) Python {
	if c, ok := py.(*caller); ok && c.gate != nil {
		return c.gate
	}
	return py
}

// ErrNoPython says that the notebook's Python cannot be asked.
var ErrNoPython = errors.New("the notebook's Python does not answer: interrupt what it runs; if it has ended, restart the kernel")

// PythonError is an exception that Python answered with.
type PythonError struct{ Name, Text string }

// Error is "NameError: name 'x' is not defined".
func (e *PythonError) Error() string {
	if e.Name == "" || e.Name == "UsageError" {
		return e.Text
	}
	return e.Name + ": " + e.Text
}

// How long Python may take to answer.
const (
	LookupTimeout  = 30 * time.Second // names and expressions
	ProgramTimeout = 5 * time.Minute  // pickling a program and what it holds
	GlanceTimeout  = 2 * time.Second  // what is shown if it comes in time
)

// Ask calls Python within a deadline.
func Ask(ctx context.Context, py Python, limit time.Duration, fn string, args, reply any) error {
	if py == nil {
		return ErrNoPython
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := py.Call(ctx, fn, args, reply)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("after %s, %w", limit, ErrNoPython)
	}
	return err
}

package bridge

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Python is a connection to the notebook's objects. It may be nil; its interpreter may have exited, or may be busy
// with code that holds it. Then names cannot be looked up, and verbs that need none continue.
type Python interface {
	// Call calls the function fn of the shim and decodes its answer into reply. The error is a *PythonError if Python
	// answered with an exception, and ErrNoPython if it does not answer.
	Call(ctx context.Context, fn string, args, reply any) error
}

// Lasting returns a Python that can be asked after the end of the command to which py belongs: the notebook's
// objects, which the shim serves until its process exits. Only py knows names of the caller's frame.
func Lasting(py Python) Python {
	if c, ok := py.(*caller); ok && c.gate != nil {
		return c.gate
	}
	return py
}

// ErrNoPython is the error of a call that the notebook's Python does not answer.
var ErrNoPython = errors.New(
	"the notebook's Python does not answer: interrupt what it runs; if it has ended, restart the kernel")

// PythonError is an exception of Python, instead of an answer.
type PythonError struct{ Name, Text string }

// Error returns a text such as "NameError: name 'x' is not defined".
func (e *PythonError) Error() string {
	if e.Name == "" || e.Name == "UsageError" {
		return e.Text
	}
	return e.Name + ": " + e.Text
}

// Time limits for an answer of Python.
const (
	LookupTimeout  = 30 * time.Second // names and expressions
	ProgramTimeout = 5 * time.Minute  // pickling a program and what it holds
	GlanceTimeout  = 2 * time.Second  // values that are shown only if they come in time
)

// Ask calls Python, with a time limit.
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

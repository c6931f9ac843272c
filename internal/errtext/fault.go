package errtext

import (
	"errors"
	"fmt"
)

// Report is the end of a FaultError's text. It is the same in cluster/python/tfcluster/feed_link.py.
const Report = "this is a fault of tfcluster: report it with the output of %tfcluster doctor"

// FaultError is an error that only a fault of tfcluster itself can cause, whatever the user, the program and the
// engine do. The user can only report it.
type FaultError struct{ err error }

// AsFault returns err with the request to report it, once; nil for nil.
func AsFault(err error) error {
	if _, ok := errors.AsType[*FaultError](err); ok || err == nil {
		return err
	}
	return &FaultError{err}
}

// Fault returns a FaultError with a text that fmt.Errorf formats.
func Fault(format string, args ...any) error { return AsFault(fmt.Errorf(format, args...)) }

// Error is one line: what went wrong, then what to do.
func (e *FaultError) Error() string { return e.err.Error() + "; " + Report }

// Unwrap returns what went wrong.
func (e *FaultError) Unwrap() error { return e.err }

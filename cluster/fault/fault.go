// Package fault marks errors that only a fault of tfcluster itself can cause, whatever the user, the program and the
// engine do. The user can only report them.
package fault

import (
	"errors"
	"fmt"
)

// Report is the end of such an error's text. It is the same in cluster/python/tfcluster/feed_link.py.
const Report = "this is a fault of tfcluster: report it with the output of %tfcluster doctor"

// Error is such an error.
type Error struct{ err error }

// Of returns err with the request to report it, once; nil for nil.
func Of(err error) error {
	if _, ok := errors.AsType[*Error](err); ok || err == nil {
		return err
	}
	return &Error{err}
}

// New returns such an error with a text that fmt.Errorf formats.
func New(format string, args ...any) error { return Of(fmt.Errorf(format, args...)) }

// Error is one line: what went wrong, then what to do.
func (e *Error) Error() string { return e.err.Error() + "; " + Report }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.err }

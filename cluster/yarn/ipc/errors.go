package ipc

import (
	"errors"
	"slices"
	"strings"
)

// RemoteError is an exception that a server answered with.
type RemoteError struct {
	Class string // without its package: InvalidToken, SafeModeException
	Text  string // the first line of its message
	Stack string // the rest, Java's stack
}

// NewRemoteError takes a class name with its package and a message with a stack. A
// message may repeat the class.
func NewRemoteError(class, message string) *RemoteError {
	text, stack, _ := strings.Cut(message, "\n")
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, class), ":"))
	class = class[strings.LastIndexAny(class, ".$")+1:]
	if class == "" {
		class = "an error without a name"
	}
	return &RemoteError{Class: class, Text: text, Stack: stack}
}

func (e *RemoteError) Error() string {
	if e.Text == "" {
		return e.Class
	}
	return e.Class + ": " + e.Text
}

// IsException says that an error is one of these exceptions of a server: class names
// without a package.
func IsException(err error, classes ...string) bool {
	e, ok := errors.AsType[*RemoteError](err)
	if !ok {
		return false
	}
	return slices.Contains(classes, e.Class)
}

// Answered says that a server answered, if only by an exception: the connection is
// fine, and the same request would bring the same.
func Answered(err error) bool {
	_, ok := errors.AsType[*RemoteError](err)
	return err == nil || ok
}

package ipc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// RemoteError is an exception of a server.
type RemoteError struct {
	Class string // without its package: InvalidToken, SafeModeException
	Text  string // the first line of its message
	Stack string // the rest: Java's stack trace
}

// NewRemoteError returns the error for an exception. class has a package; message may begin with the class
// and end with a stack trace.
func NewRemoteError(class, message string) *RemoteError {
	text, stack, _ := strings.Cut(message, "\n")
	text = strings.TrimSpace(strings.TrimPrefix(strings.TrimPrefix(text, class), ":"))
	class = cmp.Or(class[strings.LastIndexAny(class, ".$")+1:], "an error without a name")
	return &RemoteError{Class: class, Text: text, Stack: stack}
}

func (e *RemoteError) Error() string {
	if e.Text == "" {
		return e.Class
	}
	return e.Class + ": " + e.Text
}

// NegotiationError says that the server answered, and that there is no way to authenticate that both allow. The next
// attempt would end in the same way.
type NegotiationError struct{ text string }

func (e *NegotiationError) Error() string { return e.text }

// AnswerError says that the server accepted the connection, and that its answer cannot be used or did not come whole.
// The next attempt may end in another way, such as after the server has started.
type AnswerError struct{ Err error }

func (e *AnswerError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong with the answer.
func (e *AnswerError) Unwrap() error { return e.Err }

// notHadoop returns the error of an answer that is not of Hadoop's protocol.
func notHadoop(format string, args ...any) error {
	return &AnswerError{
		Err: fmt.Errorf(format+": check that this is the address of a Hadoop IPC port, not of a web page", args...),
	}
}

// IsException reports whether an error is one of these exceptions of a server. Class names have no package.
func IsException(err error, classes ...string) bool {
	e, ok := errors.AsType[*RemoteError](err)
	return ok && slices.Contains(classes, e.Class)
}

// Answered reports whether a server answered a call that returned err, with success or an exception: then the
// connection works, and the same request would have the same result.
func Answered(err error) bool {
	_, ok := errors.AsType[*RemoteError](err)
	return err == nil || ok
}

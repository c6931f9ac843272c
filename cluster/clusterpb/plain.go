package clusterpb

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// closed stands for the text of a stream that has ended without a reason.
const closed = "the other side ended, or closed the connection"

// Plain returns err with a text for people: without gRPC's words before what the other side said. It wraps
// err; nil for nil.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return plainError{err}
}

// Lost returns the error, for the program of a task, of a call or a stream of its executor to the driver.
func Lost(task string, err error) error {
	// Else the driver refuses, or something failed here.
	if status.Code(err) == codes.Unavailable || errors.Is(err, io.EOF) {
		return fmt.Errorf("the executor of %s has lost the connection to the cluster's driver: %w", task, Plain(err))
	}
	return Plain(err)
}

// Failed returns the error of a call that is answered with a failure; FailureOf finds it.
func Failed(f *Failure) error {
	s := status.New(codes.Aborted, f.GetSummary())
	if with, err := s.WithDetails(f); err == nil {
		s = with
	}
	return s.Err()
}

// FailureOf returns the failure in the error of a call; nil if there is none.
func FailureOf(err error) *Failure {
	s, _ := status.FromError(err)
	for _, detail := range s.Details() {
		if f, ok := detail.(*Failure); ok {
			return f
		}
	}
	return nil
}

type plainError struct{ error }

// Error is the text without each "rpc error: code = CODE desc = " of package status, and with what gRPC quotes after
// "connection error: desc = " of its connections.
func (e plainError) Error() string {
	text := strings.ReplaceAll(e.error.Error(), "error reading from server: EOF", closed)
	if text == "EOF" {
		return closed
	}
	for {
		if before, said, found := strings.Cut(text, "connection error: desc = "); found {
			if quoted, err := strconv.QuotedPrefix(said); err == nil {
				plain, _ := strconv.Unquote(quoted) // it is quoted
				text = before + plain + said[len(quoted):]
				continue
			}
		}
		before, code, found := strings.Cut(text, "rpc error: code = ")
		_, said, is := strings.Cut(code, " desc = ")
		if !found || !is {
			return text
		}
		text = before + said
	}
}

// Unwrap returns the error as it was.
func (e plainError) Unwrap() error { return e.error }

package clusterpb

import (
	"strconv"
	"strings"
)

// Plain returns err with a text for people: without gRPC's words before what the other side said. It wraps err; nil for nil.
func Plain(err error) error {
	if err == nil {
		return nil
	}
	return plainError{err}
}

type plainError struct{ error }

// Error is the text without each "rpc error: code = CODE desc = " of package status, and with what gRPC quotes after
// "connection error: desc = " of its connections.
func (e plainError) Error() string {
	text := e.error.Error()
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

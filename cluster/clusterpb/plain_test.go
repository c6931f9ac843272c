package clusterpb

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestPlain: the text has no words of gRPC, at no depth, and the error stays what it is.
func TestPlain(t *testing.T) {
	t.Parallel()
	refused := status.Error(codes.NotFound, "no such file")
	for _, c := range []struct {
		err  error
		want string
	}{
		{refused, "no such file"},
		{fmt.Errorf("fetch x: %w", refused), "fetch x: no such file"},
		{fmt.Errorf("fetch x: %w", status.Error(codes.Unavailable, refused.Error())), "fetch x: no such file"},
		{errors.New("rpc error: code = lost"), "rpc error: code = lost"},
		{errors.New("full"), "full"},
		{io.EOF, closed},
		{fmt.Errorf("report: %w", status.Error(codes.Unavailable, "error reading from server: EOF")), "report: " + closed},
		{status.Error(codes.Unavailable, `connection error: desc = "dial \"x\": refused"`), `dial "x": refused`},
		{
			fmt.Errorf(`a: %w; b`, status.Error(codes.Unavailable,
				`last: connection error: desc = "rpc error: code = Internal desc = closed"`)), "a: last: closed; b",
		},
		{errors.New("connection error: desc = closed"), "connection error: desc = closed"},
	} {
		if got := Plain(c.err); got.Error() != c.want || !errors.Is(got, c.err) || status.Code(got) != status.Code(c.err) {
			t.Errorf("%v: %q, code %v", c.err, got, status.Code(got))
		}
	}
	if Plain(nil) != nil {
		t.Error("nil is an error")
	}
}

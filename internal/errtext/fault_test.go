package errtext

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// TestAsFault: the request is added once, and the cause is kept.
func TestAsFault(t *testing.T) {
	t.Parallel()
	if AsFault(nil) != nil {
		t.Error("an error of nothing")
	}
	err := AsFault(fmt.Errorf("join: %w", Fault("read the answer: %w", io.EOF)))
	if want := "join: read the answer: EOF; " + Report; err.Error() != want || !errors.Is(err, io.EOF) {
		t.Errorf("%q, want %q", err, want)
	}
}

// TestPython: Python asks for the same.
func TestPython(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../cluster/python/tfcluster/feed_link.py")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `FAULT = "`+Report+`"`) {
		t.Error("feed_link.py has another text")
	}
}

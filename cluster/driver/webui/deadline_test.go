package webui

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestLongAnswers: an answer may take longer than the limit as long as it flows; one that
// nobody takes in ends.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	const limit = time.Second // to write what the socket has room for
	piece := strings.Repeat("x", 1<<10)
	refused := make(chan error, 1)
	board := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/endless" {
			_, err := io.Copy(w, endless{})
			refused <- err
			return
		}
		for range 3 {
			time.Sleep(limit * 3 / 4) // all of it is too long
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	}))
	t.Cleanup(board.Close)
	at, err := url.Parse(board.URL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := newServer(perWriteDeadline(httputil.NewSingleHostReverseProxy(at), limit), limit)
	served := make(chan struct{})
	go func() { _ = server.Serve(listener); close(served) }() // until it is closed
	t.Cleanup(func() { _ = server.Close(); <-served })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	get := func(path string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { answer.Body.Close() })
		return answer
	}
	if got, err := io.ReadAll(get("/slow").Body); err != nil || len(got) != 3*len(piece) {
		t.Errorf("of a long answer came %d bytes: %v", len(got), err)
	}
	get("/endless") // and none of it is read
	select {
	case err := <-refused:
		if err == nil {
			t.Error("an answer without an end was written")
		}
	case <-ctx.Done():
		t.Error("who takes nothing in is not cut off")
	}
}

// endless never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

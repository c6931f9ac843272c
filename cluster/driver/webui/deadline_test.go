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
	"testing/synctest"
	"time"
)

// pipes is a network of connections in memory, whose deadlines are in virtual time.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }
func (p *pipes) Close() error   { close(p.ended); return nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

// serve serves until the end of the test and returns what requests it.
func serve(t *testing.T, server *http.Server) *http.Transport {
	t.Helper()
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	served := make(chan struct{})
	go func() { _ = server.Serve(p); close(served) }() // until it is closed
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		p.conns <- there
		return here, nil
	}}
	t.Cleanup(func() { transport.CloseIdleConnections(); _ = server.Close(); <-served })
	return transport
}

// TestLongAnswers: an answer may take longer than the limit as long as it flows; one that
// nobody takes in ends.
func TestLongAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Second // of a write
		piece := strings.Repeat("x", 1<<10)
		refused := make(chan error, 1)
		page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
		})
		browser := http.Client{Transport: serve(t, newServer(perWriteDeadline(page, limit), limit))}
		get := func(path string) *http.Response {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://driver"+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			answer, err := browser.Do(request)
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
		case <-time.After(time.Minute):
			t.Error("who takes nothing in is not cut off")
		}
	})
}

// TestProxiedAnswer: what a proxied page flushes is sent at once, as TensorBoard's is.
func TestProxiedAnswer(t *testing.T) {
	t.Parallel()
	read := make(chan struct{})
	board := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		<-read
		_, _ = io.WriteString(w, "second")
	}))
	t.Cleanup(board.Close)
	at, err := url.Parse(board.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(at)
	proxy.FlushInterval = -1
	page := httptest.NewServer(perWriteDeadline(proxy, time.Minute))
	t.Cleanup(page.Close)
	browser := http.Client{Timeout: 2 * time.Minute}
	answer, err := browser.Get(page.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	first := make([]byte, len("first"))
	if _, err := io.ReadFull(answer.Body, first); err != nil || string(first) != "first" {
		t.Errorf("the answer begins with %q: %v", first, err)
	}
	close(read)
	if rest, err := io.ReadAll(answer.Body); err != nil || string(rest) != "second" {
		t.Errorf("it ends with %q: %v", rest, err)
	}
}

// endless never ends.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

package lines

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/tensorboard"
)

// deadline bounds every wait: a test that reaches it has failed.
const deadline = time.Minute

// served is a Handler behind the cluster's proxy and the broker.
type served struct {
	*Handler
	t       *testing.T
	board   *tensorboard.Board
	at      tensorboard.Address
	broker  string // its socket
	ctx     context.Context
	browser *http.Client
}

func serve(t *testing.T, source Source) *served {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "tfl") // sockets' paths are short
	if err != nil {
		t.Fatal(err)
	}
	s := &served{Handler: New("brave-otter", source), t: t, broker: filepath.Join(dir, "broker.sock")}
	s.board = tensorboard.New("brave-otter", "", filepath.Join(dir, "brave-otter"), filepath.Join(dir, "log"), s.Handler)
	if s.at, err = s.board.Lines(); err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithTimeout(context.Background(), deadline)
	ended := make(chan error, 1)
	go func() { ended <- tensorboard.Broker(s.ctx, s.broker, dir) }()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.broker)
	}
	transport := &http.Transport{DialContext: dial, DisableCompression: true}
	s.browser = &http.Client{Transport: transport}
	t.Cleanup(func() {
		s.Close()
		transport.CloseIdleConnections()
		cancel()
		if err := errors.Join(s.board.Close(context.Background()), <-ended, os.RemoveAll(dir)); err != nil {
			t.Error(err)
		}
	})
	for s.ctx.Err() == nil {
		if _, err := os.Stat(s.broker); err == nil {
			return s
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatal("the broker does not listen")
	return nil
}

// path is a path below the token's, at the broker.
func (s *served) path(below string) string {
	return strings.TrimPrefix(s.at.Path, tensorboard.Prefix) + below
}

// get requests a path of the broker.
func (s *served) get(path string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.ctx, http.MethodGet, "http://jupyter.example"+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// text is a whole response: its status and body.
func (s *served) text(path string) (code int, body string) {
	s.t.Helper()
	resp := s.get(path)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// dial opens a WebSocket at a path of the broker.
func (s *served) dial(path string, query url.Values, origin string) (*websocket.Conn, *http.Response, error) {
	d := websocket.Dialer{
		HandshakeTimeout: deadline, NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", s.broker)
		},
	}
	u := url.URL{Scheme: "ws", Host: "jupyter.example", Path: path, RawQuery: query.Encode()}
	return d.DialContext(s.ctx, u.String(), http.Header{"Origin": {origin}})
}

// follow opens lines/live as a page of the Jupyter server does.
func (s *served) follow(query url.Values) *websocket.Conn {
	s.t.Helper()
	conn, _, err := s.dial(s.path("lines/live"), query, "http://jupyter.example")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	if err := conn.SetReadDeadline(time.Now().Add(deadline)); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// received is a message of the socket, whichever it is.
type received struct {
	message
	Over  bool   `json:"over"`
	Error string `json:"error"`
}

func read(t *testing.T, conn *websocket.Conn) received {
	t.Helper()
	var m received
	_, b, err := conn.ReadMessage()
	if err == nil {
		err = json.Unmarshal(b, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// readClose reads the close message.
func readClose(t *testing.T, conn *websocket.Conn, code int) {
	t.Helper()
	if _, b, err := conn.ReadMessage(); !websocket.IsCloseError(err, code) {
		t.Errorf("the socket ends with %q, %v, want the code %d", b, err, code)
	}
}

// idle waits until no request is served.
func (s *served) idle() {
	s.t.Helper()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
	case <-s.ctx.Done():
		s.t.Fatal("a request is still served")
	}
}

// stored is a source of these replies.
func stored(replies ...*clusterpb.LinesReply) Source {
	return func(_ context.Context, _ *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
		for _, r := range replies {
			if err := send(r); err != nil {
				return err
			}
		}
		return nil
	}
}

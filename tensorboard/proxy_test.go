package tensorboard

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const (
	testToken  = "00112233445566778899aabbccddeeff"
	testSecret = "/brave-otter/" + testToken + "/"
)

// socketDir is a folder whose name leaves room for a socket's 100 bytes.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// serveUnix serves on a unix socket until the test ends.
func serveUnix(t *testing.T, socket string, h http.Handler) {
	t.Helper()
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(ln) // ends by Close
	}()
	t.Cleanup(func() {
		_ = server.Close() // the socket's folder goes too
		<-done
	})
}

// startBroker runs Broker over dir and returns its socket.
func startBroker(t *testing.T, dir string) string {
	t.Helper()
	socket := filepath.Join(socketDir(t), "broker.sock")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- Broker(ctx, socket, dir) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Broker: %v", err)
		}
		if _, err := os.Stat(socket); err == nil {
			t.Errorf("Broker left %s", socket)
		}
	})
	eventually(t, "the broker listens", func() bool {
		info, err := os.Stat(socket)
		return err == nil && info.Mode().Perm() == 0o600
	})
	return socket
}

// eventually waits for what must come, with a deadline that only a failure meets.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// unixClient is a browser that follows no redirect; each request goes to the socket.
func unixClient(t *testing.T, socket string) *http.Client {
	t.Helper()
	transport := unixTransport(socket)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func do(t *testing.T, c *http.Client, r *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func get(t *testing.T, c *http.Client, path string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://jupyter"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, c, r)
}

// fakeBoard serves backend as the TensorBoard of brave-otter, through proxy and
// broker, and returns the broker's socket.
func fakeBoard(t *testing.T, backend http.Handler) string {
	t.Helper()
	dir := socketDir(t)
	board := filepath.Join(dir, "brave-otter")
	if err := os.Mkdir(board, 0o700); err != nil {
		t.Fatal(err)
	}
	serveUnix(t, filepath.Join(board, "tb.sock"), backend)
	serveUnix(t, filepath.Join(board, SocketName), NewProxy(testSecret, filepath.Join(board, "tb.sock"), nil))
	return startBroker(t, dir)
}

func TestWhoMayAsk(t *testing.T) {
	t.Parallel()
	client := unixClient(t, fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "board "+r.URL.EscapedPath()+" "+r.URL.RawQuery)
	})))
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		testSecret:                                               {200, "board / "},
		testSecret + "data/runs?a=b%2Fc":                         {200, "board /data/runs a=b%2Fc"},
		testSecret + "data/a%2Fb":                                {200, "board /data/a%2Fb "},
		"/brave-otter/" + strings.Repeat("0", 32) + "/":          {404, "404 page not found\n"},
		"/brave-otter/" + testToken[:31] + "/":                   {404, "404 page not found\n"},
		"/brave-otter/" + testToken + "0/":                       {404, "404 page not found\n"},
		"/brave-otter/" + testToken[:31] + "/" + testToken + "/": {404, "404 page not found\n"},
		"/brave-otter/":                                          {404, "404 page not found\n"},
		"/brave-otter":                                           {404, "404 page not found\n"},
		"/":                                                      {404, "404 page not found\n"},
		"/../brave-otter/" + testToken + "/":                     {404, "404 page not found\n"},
		"/%2e%2e/" + testToken + "/":                             {404, "404 page not found\n"},
		"/a%2Fb/" + testToken +
			"/": {404, "this cluster's TensorBoard is gone: %tfcluster tensorboard opens another\n"},
		"/gone/" + testToken + "/": {404, "this cluster's TensorBoard is gone: %tfcluster tensorboard opens another\n"},
	} {
		resp, body := get(t, client, path)
		if resp.StatusCode != want.status || body != want.body {
			t.Errorf("%s: %d %q, want %d %q", path, resp.StatusCode, body, want.status, want.body)
		}
	}
}

func TestCredentialsGoNoFurther(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 1)
	client := unixClient(t, fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Clone(context.Background())
		http.SetCookie(w, &http.Cookie{Name: "theirs", Value: "1"})
	})))
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://jupyter"+testSecret+
		"?token=secret&run=a%2Fb", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-XSRFToken", "1")
	r.Header.Set("Cookie", "_xsrf=1; username-8888=secret")
	r.Header.Set("Authorization", "token secret")
	r.Header.Set("Referer", "http://jupyter/lab?token=secret")
	r.Header.Set("Sec-WebSocket-Protocol", "v1.plugin, v1.token.websocket.jupyter.org.secret")
	r.Header.Set("X-Kept", "yes")
	resp, _ := do(t, client, r)
	got := <-seen
	if h := got.Header; h.Get("Cookie") != "" || h.Get("Authorization") != "" || h.Get("X-XSRFToken") != "" ||
		h.Get("Referer") != "" || h.Get("Sec-WebSocket-Protocol") != "v1.plugin" || h.Get("X-Kept") != "yes" {
		t.Errorf("TensorBoard was sent %v", h)
	}
	if q := got.URL.RawQuery; q != "run=a%2Fb" {
		t.Errorf("TensorBoard was sent the query %q", q)
	}
	if resp.Header.Get("Set-Cookie") != "" {
		t.Error("TensorBoard may set a cookie for the Jupyter server")
	}
}

func TestFraming(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		"":                      "frame-ancestors 'self'",
		"default-src 'self';":   "default-src 'self'; frame-ancestors 'self'",
		"default-src 'self'":    "default-src 'self'; frame-ancestors 'self'",
		" default-src 'self' ;": "default-src 'self' ; frame-ancestors 'self'",
	} {
		client := unixClient(t, fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if policy != "" {
				w.Header().Set("Content-Security-Policy", policy)
			}
		})))
		resp, _ := get(t, client, testSecret)
		if got := resp.Header.Get("Content-Security-Policy"); got != want {
			t.Errorf("policy %q becomes %q, want %q", policy, got, want)
		}
	}
}

func TestFontAddressesBecomeRelative(t *testing.T) {
	t.Parallel()
	const page = "<style>src: url(/font-roboto/a.woff2)</style>"
	client := unixClient(t, fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") && r.URL.Path == "/" {
			t.Error("the page was asked for compressed")
		}
		w.Header().Set("Content-Type",
			map[string]string{"/": "text/html; charset=utf-8", "/x.js": "text/javascript"}[r.URL.Path])
		w.Header().Set("Content-Encoding", "identity") // as TensorBoard says
		_, _ = io.WriteString(w, page)
	})))
	resp, body := get(t, client, testSecret)
	if want := "<style>src: url(./font-roboto/a.woff2)</style>"; body != want || resp.ContentLength != int64(len(want)) {
		t.Errorf("the page is %q (%d bytes), want %q", body, resp.ContentLength, want)
	}
	if _, body := get(t, client, testSecret+"x.js"); body != page {
		t.Errorf("a script is %q, want it unchanged", body)
	}
}

// TestMissingSlash mounts the broker below a base URL, as jupyter-server-proxy does.
func TestMissingSlash(t *testing.T) {
	t.Parallel()
	socket := fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "board "+r.URL.String())
	}))
	client := unixClient(t, socket)
	const base = "/user/ana/tfcluster"
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		inner, err := http.NewRequestWithContext(r.Context(), r.Method, "http://broker"+
			strings.TrimPrefix(r.URL.String(), base), nil)
		if err != nil {
			t.Error(err)
			return
		}
		resp, body := do(t, client, inner)
		if to := resp.Header.Get("Location"); to != "" {
			w.Header().Set("Location", to)
		}
		w.WriteHeader(resp.StatusCode)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(hub.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, hub.URL+base+strings.TrimSuffix(testSecret, "/")+
		"?x=1", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, body := do(t, hub.Client(), r)
	if body != "board /?x=1" || resp.Request.URL.Path != base+testSecret {
		t.Errorf("ended at %s with %q", resp.Request.URL, body)
	}
}

func TestWebsocketPasses(t *testing.T) {
	t.Parallel()
	var upgrader websocket.Upgrader // whose own check of Origin decides
	socket := fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return // it has answered
		}
		defer conn.Close()
		kind, data, err := conn.ReadMessage()
		if err == nil {
			_ = conn.WriteMessage(kind, append([]byte("echo "), data...)) // the client sees it fail
		}
	}))
	dial := func(origin string) (*websocket.Conn, *http.Response, error) {
		dialer := websocket.Dialer{
			NetDialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", socket)
			},
			HandshakeTimeout: time.Minute,
		}
		u := url.URL{Scheme: "ws", Host: "jupyter.example", Path: testSecret + "ws"}
		return dialer.DialContext(t.Context(), u.String(), http.Header{"Origin": {origin}})
	}
	conn, _, err := dial("http://jupyter.example")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.WriteMessage(websocket.TextMessage, []byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, data, err := conn.ReadMessage(); err != nil || string(data) != "echo hello" {
		t.Errorf("answer %q, %v", data, err)
	}
	conn, resp, err := dial("http://evil.example")
	if err == nil {
		conn.Close()
		t.Fatal("a foreign page was let in")
	}
	if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("a foreign page was answered %v, %v", resp, err)
	}
}

func TestBackendGone(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	board := filepath.Join(dir, "brave-otter")
	if err := os.Mkdir(board, 0o700); err != nil {
		t.Fatal(err)
	}
	serveUnix(t, filepath.Join(board, SocketName), NewProxy(testSecret, filepath.Join(board, "tb.sock"), nil))
	client := unixClient(t, startBroker(t, dir))
	if resp, body := get(t, client, testSecret); resp.StatusCode != http.StatusBadGateway ||
		!strings.Contains(body, "%tfcluster tensorboard") {
		t.Errorf("without TensorBoard: %d %q", resp.StatusCode, body)
	}
	stale := filepath.Join(dir, "stale")
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(stale, SocketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if resp, body := get(t, client, "/stale/"+testToken+"/"); resp.StatusCode != http.StatusBadGateway ||
		!strings.Contains(body, "does not answer") {
		t.Errorf("with a dead socket: %d %q", resp.StatusCode, body)
	}
}

package tensorboard

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
)

// checkHardened checks the headers that each response has exactly once.
func checkHardened(t *testing.T, what string, resp *http.Response) {
	t.Helper()
	for name, want := range map[string]string{"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"} {
		if got := resp.Header.Values(name); len(got) != 1 || got[0] != want {
			t.Errorf("%s: %s %q, want %q once", what, name, got, want)
		}
	}
}

// TestEveryResponseIsHardened: of the broker, of the proxy and of TensorBoard, also if TensorBoard sets other values.
func TestEveryResponseIsHardened(t *testing.T) {
	t.Parallel()
	socket := fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/own" {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			w.Header().Set("Referrer-Policy", "unsafe-url")
		}
		_, _ = io.WriteString(w, "board")
	}))
	client := unixClient(t, socket)
	for path, code := range map[string]int{
		testSecret: 200, testSecret + "own": 200, testSecret[:len(testSecret)-1]: 308, "/brave-otter/0/": 404, "/gone/" +
			testToken + "/": 404, "/": 404,
	} {
		resp, _ := get(t, client, path)
		if resp.StatusCode != code {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, code)
		}
		checkHardened(t, path, resp)
	}
	dir := socketDir(t) // where nothing listens
	for what, h := range map[string]http.Handler{
		"the proxy without TensorBoard": NewProxy(testSecret, filepath.Join(dir, "tb.sock"), nil),
		"GetOnly without TensorBoard": GetOnly(testSecret,
			Address{Path: Prefix + testSecret, Socket: filepath.Join(dir, SocketName)}),
		"the broker without a live proxy": route(filepath.Dir(dir)),
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, testSecret, nil))
		if w.Code < 400 {
			t.Errorf("%s: %d", what, w.Code)
		}
		checkHardened(t, what, w.Result())
	}
}

// TestDataOfRunsIsSandboxed: data that a task wrote cannot run scripts in the origin of the notebook; TensorBoard's
// own pages, and those of its plugins, can load what they show.
func TestDataOfRunsIsSandboxed(t *testing.T) {
	t.Parallel()
	const self = "frame-ancestors 'self'"
	client := unixClient(t, fakeBoard(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Content-Type"] = []string{r.URL.Query().Get("type")}
		if r.URL.Query().Has("own") {
			w.Header().Set("Content-Security-Policy", "default-src 'self'")
		}
	})))
	for path, want := range map[string]string{
		"?type=text/html": self,
		"data/plugin_entry.html?name=projector&type=text/html":       self,
		"data/plugin/projector/projector_binary.html?type=text/html": self,
		"data/plugin/profile/index.js?type=text/javascript":          self,
		"data/plugin/profile/a.css?type=text/css":                    self,
		"data/runs?type=application/json":                            self,
		"data/plugin/images/individualImage?type=image/svg%2Bxml":    "sandbox; " + self,
		"data/plugin/images/individualImage?type=image/png":          "sandbox; " + self,
		"data/plugin/hparams/download_data?type=text/csv":            "sandbox; " + self,
		"data/plugin/x/raw?type=application/xhtml%2Bxml":             "sandbox; " + self,
		"data/plugin/x/raw?type=":                                    "sandbox; " + self,
		"data/plugin/x/raw?type=text/html%3B%20charset=utf-8":        "sandbox allow-scripts; " + self,
		"data/plugin/x/raw.html?type=image/svg%2Bxml":                "sandbox; " + self,
		"data/plugin/x/raw?own=1&type=text/html": "default-src 'self'; sandbox allow-scripts; " +
			self,
		"data/plugin/x/raw?own=1&type=TEXT/HTML%3B%20charset=%22utf-8%3B": "default-src 'self'; sandbox; " + self,
	} {
		resp, _ := get(t, client, testSecret+path)
		if got := resp.Header.Get("Content-Security-Policy"); got != want {
			t.Errorf("%s: policy %q, want %q", path, got, want)
		}
	}
}

package tensorboard

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// TestGetOnly: what the page asks for in the place of a POST is one to TensorBoard, and
// nothing else is.
func TestGetOnly(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	serveUnix(t, filepath.Join(dir, "tb.sock"), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, `<html><head><title>TensorBoard</title></head><body></body></html>`)
			return
		}
		body, err := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s %s %q %v", r.Method, r.URL.RequestURI(), r.Header.Get("Content-Type"), body, err)
	}))
	serveUnix(t, filepath.Join(dir, SocketName), NewProxy(testSecret, filepath.Join(dir, "tb.sock"), nil))
	page := httptest.NewServer(
		GetOnly("/tensorboard/", Address{Path: Prefix + testSecret, Socket: filepath.Join(dir, SocketName)}))
	t.Cleanup(page.Close)
	query := func(body, kind string) string {
		safe := base64.RawURLEncoding.EncodeToString
		return bodyKey + "=" + safe([]byte(body)) + "&" + typeKey + "=" + safe([]byte(kind))
	}
	for _, tt := range []struct {
		ask  string
		code int
		want string
	}{
		{"/tensorboard/", 200, `<html><head><script src="` + getOnlyName + `"></script><title>`},
		{"/tensorboard/" + getOnlyName, 200, "XMLHttpRequest.prototype"},
		{"/tensorboard/data/runs?a=b", 200, `GET /data/runs?a=b  "" <nil>`},
		{
			"/tensorboard/data/plugin/timeseries/timeSeries?x=1&" +
				query("requests=[é]&n", "application/x-www-form-urlencoded;charset=UTF-8"), 200,
			`POST /data/plugin/timeseries/timeSeries?x=1 application/x-www-form-urlencoded;charset=UTF-8 "requests=[é]&n" <nil>`,
		},
		{
			"/tensorboard/data/plugin/hparams/experiment?" + query("{}", "text/plain"), 200,
			`POST /data/plugin/hparams/experiment text/plain "{}" <nil>`,
		},
		{"/tensorboard/data/runs?" + bodyKey + "=*", 200, `GET /data/runs?` + bodyKey + `=*  "" <nil>`},
		{"/elsewhere", 404, "404"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, page.URL+tt.ask, nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, body := do(t, page.Client(), r)
		if answer.StatusCode != tt.code || !strings.Contains(body, tt.want) || strings.Contains(body, testToken) {
			t.Errorf("%s: %d %q, want %q", tt.ask, answer.StatusCode, body, tt.want)
		}
	}
}

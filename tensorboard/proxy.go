package tensorboard

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// unixTransport connects to an HTTP server on a unix socket, whatever the request's host is.
func unixTransport(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 2 * time.Minute,
	}
}

// NewProxy serves the TensorBoard behind a unix socket below a secret path that ends in a
// slash; other paths are not found. The browser's cookies and authorization, which are for the
// Jupyter server, are removed. lines, unless nil, serves /lines there and the paths below it.
func NewProxy(secretPath, socket string, lines http.Handler) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "tensorboard"
			r.Out.URL.Path = "/" + strings.TrimPrefix(r.In.URL.Path, secretPath)
			r.Out.URL.RawPath = "/" + strings.TrimPrefix(r.In.URL.EscapedPath(), secretPath)
			removeCredentials(r.Out)
			if r.Out.URL.Path == "/" { // rewritten below
				r.Out.Header.Set("Accept-Encoding", "identity")
			}
		},
		Transport:      unixTransport(socket),
		ModifyResponse: rewritePage,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "TensorBoard does not answer: "+err.Error()+"; %tfcluster tensorboard starts it again",
				http.StatusBadGateway)
		},
		FlushInterval: 100 * time.Millisecond,
	}
	return hardened(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case hasSecretPrefix(r.URL.Path, secretPath) && lines != nil && isLines(r.URL.Path[len(secretPath):]):
			http.StripPrefix(strings.TrimSuffix(secretPath, "/"), lines).ServeHTTP(w, r)
		case hasSecretPrefix(r.URL.Path, secretPath):
			proxy.ServeHTTP(w, r)
		case hasSecretPrefix(r.URL.Path+"/", secretPath):
			// TensorBoard's relative URLs need the slash. This one is relative too:
			// http.Redirect would make it absolute, without the base URL.
			to := url.URL{Path: path.Base(secretPath) + "/", RawQuery: r.URL.RawQuery}
			w.Header().Set("Location", to.String())
			w.WriteHeader(http.StatusPermanentRedirect)
		default:
			http.NotFound(w, r)
		}
	}))
}

// isLines returns whether a path below the secret one is of lines.
func isLines(below string) bool { return below == "lines" || strings.HasPrefix(below, "lines/") }

// removeCredentials removes credentials of the Jupyter server from a request: headers, and the token in a
// query, in the address of the page before it and in the subprotocols of a WebSocket.
func removeCredentials(r *http.Request) {
	for _, name := range []string{"Cookie", "Authorization", "X-Xsrftoken", "Referer"} {
		r.Header.Del(name)
	}
	const protocols = "Sec-Websocket-Protocol"
	if given := strings.Join(r.Header.Values(protocols), ","); strings.Contains(given, ".token.") {
		var kept []string
		for p := range strings.SplitSeq(given, ",") {
			// JupyterLab's is v1.token.websocket.jupyter.org.TOKEN.
			if p = strings.TrimSpace(p); !strings.Contains(p, ".token.") {
				kept = append(kept, p)
			}
		}
		if r.Header.Del(protocols); len(kept) > 0 {
			r.Header.Set(protocols, strings.Join(kept, ", "))
		}
	}
	if q := r.URL.Query(); q.Has("token") {
		q.Del("token")
		r.URL.RawQuery = q.Encode()
	}
}

// hasSecretPrefix returns whether a path begins with the secret one, in constant time.
func hasSecretPrefix(path, secret string) bool {
	if len(path) < len(secret) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(path[:len(secret)]), []byte(secret)) == 1
}

// rewritePage allows framing by pages of the same origin only, isolates the data of runs, and makes the
// URLs of TensorBoard's fonts relative.
func rewritePage(r *http.Response) error {
	withoutHardened(r)
	var policy []string
	for _, p := range []string{
		r.Header.Get("Content-Security-Policy"), sandboxOf(r.Request.URL.Path, r.Header.Get("Content-Type")),
		"frame-ancestors 'self'",
	} {
		if p = strings.TrimSuffix(strings.TrimSpace(p), ";"); p != "" {
			policy = append(policy, p)
		}
	}
	r.Header.Set("Content-Security-Policy", strings.Join(policy, "; "))
	r.Header.Del("Set-Cookie")
	encoding := r.Header.Get("Content-Encoding")
	if r.Request.URL.Path != "/" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") ||
		encoding != "" && encoding != "identity" {
		return nil
	}
	const most = 32 << 20
	body, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if cerr := r.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("read TensorBoard's page: %w", err)
	}
	if len(body) > most {
		return errors.New(
			"its page is too large to be TensorBoard's: check the package tensorboard in TFCLUSTER_TENSORBOARD_PYTHON")
	}
	body = bytes.ReplaceAll(body, []byte("url(/font-roboto/"), []byte("url(./font-roboto/"))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

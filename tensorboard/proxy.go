package tensorboard

import (
	"bytes"
	"context"
	"crypto/subtle"
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

// unixTransport reaches an HTTP server on a unix socket, whatever host a request names.
func unixTransport(socket string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", socket)
		},
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 30 * time.Second, ResponseHeaderTimeout: 2 * time.Minute,
	}
}

// NewProxy serves the TensorBoard behind a unix socket below a path that ends in a
// secret. What does not know the secret is not found. The browser's cookies and
// authorization are the Jupyter server's and go no further.
func NewProxy(secretPath, socket string) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "tensorboard"
			r.Out.URL.Path = "/" + strings.TrimPrefix(r.In.URL.Path, secretPath)
			r.Out.URL.RawPath = "/" + strings.TrimPrefix(r.In.URL.EscapedPath(), secretPath)
			strip(r.Out)
			if r.Out.URL.Path == "/" { // to be rewritten below
				r.Out.Header.Set("Accept-Encoding", "identity")
			}
		},
		Transport:      unixTransport(socket),
		ModifyResponse: mend,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "TensorBoard does not answer: "+err.Error()+"; %tfcluster tensorboard starts it again", http.StatusBadGateway)
		},
		FlushInterval: 100 * time.Millisecond,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case under(r.URL.Path, secretPath):
			proxy.ServeHTTP(w, r)
		case under(r.URL.Path+"/", secretPath):
			// TensorBoard's relative addresses need the slash. This one is relative as
			// well: http.Redirect would make it absolute, without the base URL.
			to := url.URL{Path: path.Base(secretPath) + "/", RawQuery: r.URL.RawQuery}
			w.Header().Set("Location", to.String())
			w.WriteHeader(http.StatusPermanentRedirect)
		default:
			http.NotFound(w, r)
		}
	})
}

// strip takes out of a request what lets its bearer into the Jupyter server: headers, and the token that a link,
// the address of the page before it and the subprotocol of a WebSocket may carry.
func strip(r *http.Request) {
	for _, name := range []string{"Cookie", "Authorization", "X-Xsrftoken", "Referer"} {
		r.Header.Del(name)
	}
	const protocols = "Sec-Websocket-Protocol"
	if given := strings.Join(r.Header.Values(protocols), ","); strings.Contains(given, ".token.") {
		var kept []string
		for p := range strings.SplitSeq(given, ",") {
			if p = strings.TrimSpace(p); !strings.Contains(p, ".token.") { // JupyterLab's is v1.token.websocket.jupyter.org.TOKEN
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

// under tells, in a time that does not depend on how much of it is right, whether a
// path begins with the secret one.
func under(path, secret string) bool {
	if len(path) < len(secret) {
		return false
	}
	return subtle.ConstantTimeCompare([]byte(path[:len(secret)]), []byte(secret)) == 1
}

// mend lets a page of ours frame the answer, and only ours, and makes the addresses of
// TensorBoard's fonts relative, the only ones that are not.
func mend(r *http.Response) error {
	if csp := r.Header.Get("Content-Security-Policy"); csp != "" {
		r.Header.Set("Content-Security-Policy", strings.TrimSuffix(strings.TrimSpace(csp), ";")+"; frame-ancestors 'self'")
	} else {
		r.Header.Set("Content-Security-Policy", "frame-ancestors 'self'")
	}
	r.Header.Del("Set-Cookie")
	encoding := r.Header.Get("Content-Encoding")
	if r.Request.URL.Path != "/" || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") || encoding != "" && encoding != "identity" {
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
		return fmt.Errorf("TensorBoard's page is larger than %d bytes", most)
	}
	body = bytes.ReplaceAll(body, []byte("url(/font-roboto/"), []byte("url(./font-roboto/"))
	r.Body = io.NopCloser(bytes.NewReader(body))
	r.ContentLength = int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

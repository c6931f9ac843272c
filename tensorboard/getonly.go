package tensorboard

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

//go:embed getonly.js
var getOnlyScript []byte

// getOnlyName is the script's name in the page.
const getOnlyName = "tfcluster-getonly.js"

// Query parameters with the body and content type of a request that is converted to a POST, in
// base64url without padding, because YARN's proxy parses queries and drops text between
// semicolons.
const (
	bodyKey = "tfcluster-body"
	typeKey = "tfcluster-type"
)

// GetOnly serves an open board below a prefix that ends in a slash, behind a proxy that
// authorizes users and forwards only GET. It does not reveal the board's secret path. POSTs of
// TensorBoard's page become GETs if they have at most 30000 bytes and are not from a plugin's
// own page.
func GetOnly(prefix string, at Address) http.Handler {
	secret := strings.TrimPrefix(at.Path, Prefix)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "tensorboard"
			r.Out.URL.Path = secret + strings.TrimPrefix(r.In.URL.Path, prefix)
			r.Out.URL.RawPath = secret + strings.TrimPrefix(r.In.URL.EscapedPath(), prefix)
			removeCredentials(r.Out)
			asPost(r.Out)
		},
		Transport: unixTransport(at.Socket),
		ModifyResponse: func(r *http.Response) error {
			withoutHardened(r)
			if r.Request.URL.Path != secret || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/html") {
				return nil
			}
			return withScript(r)
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, "TensorBoard does not answer: "+err.Error()+"; load its page again", http.StatusBadGateway)
		},
	}
	return hardened(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasPrefix(r.URL.Path, prefix):
			http.NotFound(w, r)
		case r.URL.Path == prefix+getOnlyName:
			w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
			w.Header().Set("Cache-Control", "no-cache")
			_, _ = w.Write(getOnlyScript) // the client may have gone
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
}

// asPost converts a GET with a body parameter to the POST that it stands for.
func asPost(r *http.Request) {
	q := r.URL.Query()
	if r.Method != http.MethodGet || !q.Has(bodyKey) {
		return
	}
	body, err := base64.RawURLEncoding.DecodeString(q.Get(bodyKey))
	kind, kerr := base64.RawURLEncoding.DecodeString(q.Get(typeKey))
	if err != nil || kerr != nil {
		return // TensorBoard returns an error
	}
	r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Type", string(kind))
	q.Del(bodyKey)
	q.Del(typeKey)
	r.URL.RawQuery = q.Encode()
}

// withScript adds the script to TensorBoard's page, which the board's proxy does not compress.
func withScript(r *http.Response) error {
	body, err := io.ReadAll(r.Body)
	if cerr := r.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("read TensorBoard's page: %w", err)
	}
	body = bytes.Replace(body, []byte("<head>"), []byte(`<head><script src="`+getOnlyName+`"></script>`), 1)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

package tensorboard

import (
	"mime"
	"net/http"
	"path"
	"strings"
)

// hardened adds headers to every response of a handler: a browser does not guess a content type,
// and no link leads the address of a page, whose path contains the token, to another server.
func hardened(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		h.ServeHTTP(w, r)
	})
}

// withoutHardened removes the headers of hardened from a response that is forwarded: the proxy would
// send both values.
func withoutHardened(r *http.Response) {
	r.Header.Del("X-Content-Type-Options")
	r.Header.Del("Referrer-Policy")
}

// pluginData is the path of what TensorBoard's plugins serve: their data, and pages and scripts of their own.
const pluginData = "/data/plugin/"

// sandboxOf returns the directive for a response of TensorBoard that is data of a run: shown as a page
// of its own, such as an SVG image or a file of HTML, it must not act in the origin of the notebook.
// "" is for pages (a plugin's NAME.html), which load data, and for their scripts and styles.
func sandboxOf(name, contentType string) string {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case !strings.HasPrefix(name, pluginData):
		return ""
	case err != nil:
		return "sandbox"
	case kind == "text/html" && path.Ext(name) == ".html", kind == "text/css", strings.HasSuffix(kind, "javascript"),
		kind == "application/wasm":
		return ""
	case kind == "text/html": // a plugin may show it in a frame, with scripts, but without the notebook's origin
		return "sandbox allow-scripts"
	}
	return "sandbox"
}

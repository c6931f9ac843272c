package webui

import (
	"net/http"
	"time"
)

// newServer returns a server that limits the time of each response; wrap a handler in
// perWriteDeadline to limit each write instead.
func newServer(page http.Handler, limit time.Duration) *http.Server {
	return &http.Server{Handler: page, ReadHeaderTimeout: pageLimit, WriteTimeout: limit}
}

// perWriteDeadline limits the time of each write of a response instead of the whole one: a
// long or late response is complete, and a client that does not read is cut off.
func perWriteDeadline(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&deadlineWriter{w, http.NewResponseController(w), limit}, r)
	})
}

// deadlineWriter extends the write deadline before each write.
type deadlineWriter struct {
	http.ResponseWriter
	conn  *http.ResponseController
	limit time.Duration
}

// Unwrap lets http.ResponseController flush.
func (f *deadlineWriter) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *deadlineWriter) WriteHeader(code int) {
	f.extend()
	f.ResponseWriter.WriteHeader(code)
}

func (f *deadlineWriter) Write(b []byte) (int, error) {
	f.extend()
	return f.ResponseWriter.Write(b)
}

// extend sets the deadline of the next write. Writers without deadlines return an error.
func (f *deadlineWriter) extend() { _ = f.conn.SetWriteDeadline(time.Now().Add(f.limit)) }

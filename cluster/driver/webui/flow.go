package webui

import (
	"net/http"
	"time"
)

// pageServer serves a page to whom answers reach within a limit, whole unless they are
// handled by whileItFlows.
func pageServer(page http.Handler, limit time.Duration) *http.Server {
	return &http.Server{Handler: page, ReadHeaderTimeout: pageLimit, WriteTimeout: limit}
}

// whileItFlows gives each piece of an answer a limit of its own: one that is long, or
// begins late, comes through, and who takes nothing in is cut off all the same.
func whileItFlows(h http.Handler, limit time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(&flowing{w, http.NewResponseController(w), limit}, r)
	})
}

// flowing moves the deadline of an answer with what is written of it.
type flowing struct {
	http.ResponseWriter
	conn  *http.ResponseController
	limit time.Duration
}

// Unwrap lets http.ResponseController flush.
func (f *flowing) Unwrap() http.ResponseWriter { return f.ResponseWriter }

func (f *flowing) WriteHeader(code int) {
	f.move()
	f.ResponseWriter.WriteHeader(code)
}

func (f *flowing) Write(b []byte) (int, error) {
	f.move()
	return f.ResponseWriter.Write(b)
}

// move gives what is written next the whole limit; a writer without deadlines has none.
func (f *flowing) move() { _ = f.conn.SetWriteDeadline(time.Now().Add(f.limit)) }

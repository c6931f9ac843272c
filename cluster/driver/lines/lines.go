// Package lines serves the lines of tasks to browsers: as a file to download, and as they come over a
// WebSocket. Its paths are below a secret one, which the caller checks.
//
//	GET /lines?run=3&task=worker:1&grep=RE&times=1
//		plain text: one line of the file for each of a task, "[worker:1] text"
//	GET /lines/live?run=3&task=&grep=&after=POSITION
//		a WebSocket that sends messages of JSON until the run has ended
//
// POSITION is a JSON object: by task, the number of its first lines to leave out. A client that
// reconnects gives one more than the greatest number that it has of each task.
//
//	{"lines":[LINE],"gap","run","position"}   LINE: clusterpb.LineJSON
//	{"over":true}       the run has ended, and all its lines were sent; the socket is then closed
//	{"error":"…"}       why the socket is closed before that
package lines

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Handler serves lines until Close. It may be used by several goroutines.
type Handler struct {
	name   string
	source Source
	closed context.Context // ends with Close
	end    context.CancelFunc

	mu   sync.Mutex     // held while closed ends, and while a request is counted
	work sync.WaitGroup // of the requests
}

// New returns the Handler of a cluster.
func New(name string, source Source) *Handler {
	h := &Handler{name: name, source: source}
	h.closed, h.end = context.WithCancel(context.Background())
	return h
}

// Close ends the requests that are being served, with an error, and waits for them.
func (h *Handler) Close() {
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	h.work.Wait()
}

// begin counts a request; false: the handler is closed.
func (h *Handler) begin() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed.Err() != nil {
		return false
	}
	h.work.Add(1)
	return true
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.begin() {
		http.Error(w, overText, http.StatusServiceUnavailable)
		return
	}
	defer h.work.Done()
	switch {
	case r.URL.Path != "/lines" && r.URL.Path != "/lines/live":
		http.NotFound(w, r)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "lines can only be read: use GET", http.StatusMethodNotAllowed)
	case r.URL.Path == "/lines":
		h.download(w, r)
	default:
		h.live(w, r)
	}
}

const overText = "the cluster is over, or its driver is ending: its lines are in its directory; " +
	"%tfcluster logs shows them"

// maxGrep is the length limit of a regular expression, in bytes.
const maxGrep = 10_000

// request returns the request that a query describes.
func request(q url.Values) (*clusterpb.LogsRequest, error) {
	req := &clusterpb.LogsRequest{Task: q.Get("task"), Grep: q.Get("grep")}
	for key, p := range map[string]*int32{"run": &req.Run, "last": &req.Last} {
		if given := q.Get(key); given != "" {
			n, err := strconv.ParseInt(given, 10, 32)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("%s is %.20q: it must be a number, such as run=3 and last=500", key, given)
			}
			*p = int32(n)
		}
	}
	if len(req.GetGrep()) > maxGrep {
		return nil, fmt.Errorf("grep is longer than %d bytes: give a shorter regular expression", maxGrep)
	}
	if _, err := regexp.Compile(req.GetGrep()); err != nil {
		return nil, fmt.Errorf("grep is no regular expression (syntax: RE2): %w; write \\ before a character that is meant "+
			"as it is, such as \\(", err)
	}
	if given := q.Get("after"); given != "" {
		if req.GetRun() == 0 {
			return nil, errors.New("after needs run: line numbers are those of one run")
		}
		req.AfterRun = req.GetRun()
		if err := json.Unmarshal([]byte(given), &req.After); err != nil {
			return nil, errors.New(`after must be an object of JSON with a number for each task, such as {"worker:0":12}`)
		}
	}
	return req, nil
}

// explain returns what a failed call means, in a sentence, and the HTTP status for it.
func explain(err error) (text string, code int) {
	s := status.Convert(err)
	switch s.Code() {
	case codes.InvalidArgument:
		return s.Message(), http.StatusBadRequest
	case codes.NotFound:
		return s.Message(), http.StatusNotFound
	case codes.Unavailable, codes.Canceled, codes.Aborted:
		return s.Message(), http.StatusServiceUnavailable
	}
	return "the lines cannot be read: " + s.Message(), http.StatusInternalServerError
}

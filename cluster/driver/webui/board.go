package webui

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// boardPath is TensorBoard's path below the page.
const boardPath = "/tensorboard/"

// boardPage serves the cluster's TensorBoard, which it starts at the first request.
type boardPage struct {
	coord interface {
		TensorBoard(ctx context.Context, r *clusterpb.TensorBoardRequest) (*clusterpb.TensorBoardReply, error)
	}
	show func(prefix string, at *clusterpb.TensorBoardReply) http.Handler
	ctx  context.Context // bounds opening
	work sync.WaitGroup  // counts the goroutine that opens it

	mu         sync.Mutex
	closed     bool          // guarded by mu
	opening    chan struct{} // guarded by mu: closed when opening has ended; nil: not opening
	shown      http.Handler  // guarded by mu: nil before the first success
	problem    error         // guarded by mu: of the last attempt to open it
	waiting    int           // guarded by mu: browsers that wait for it to open
	unreported bool          // guarded by mu: the last attempt ended while no browser waited
}

// openWait is how long a request waits for TensorBoard before it gets the page `starting`.
const openWait = 3 * time.Second

const starting = `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2">` +
	`<title>TensorBoard</title></head>
<body><p>TensorBoard is starting.</p></body></html>
`

// ServeHTTP opens TensorBoard at a request of its first page, again if it has ended, and
// passes all other requests to it.
func (p *boardPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == boardPath {
		opened, starts := p.open(), true
		select {
		case <-opened:
			starts = false
		case <-time.After(openWait):
		case <-r.Context().Done():
		}
		p.stopWaiting()
		if starts {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write([]byte(starting)) // the client may have gone
			return
		}
	}
	p.mu.Lock()
	shown, problem := p.shown, p.problem
	p.mu.Unlock()
	switch {
	case problem != nil:
		http.Error(w, problem.Error(), http.StatusServiceUnavailable)
	case shown == nil:
		http.Error(w, "TensorBoard is not open: load its page", http.StatusServiceUnavailable)
	default:
		shown.ServeHTTP(w, r)
	}
}

// open begins to open TensorBoard and returns a channel that is closed when that has ended.
// It opens nothing while that is under way, or if a result came after the last browser
// stopped waiting, which this one then shows. The caller must call stopWaiting.
func (p *boardPage) open() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	if p.opening != nil {
		return p.opening
	}
	done := make(chan struct{})
	if p.closed || p.unreported {
		p.unreported = false
		close(done)
		return done
	}
	p.opening = done
	p.work.Go(func() {
		defer close(done)
		reply, err := p.coord.TensorBoard(p.ctx, &clusterpb.TensorBoardRequest{})
		if err == nil && reply.GetError() != "" {
			err = errors.New(reply.GetError())
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.opening, p.problem, p.unreported = nil, err, p.waiting == 0
		if err == nil {
			p.shown = p.show(boardPath, reply)
		}
	})
	return done
}

// stopWaiting ends a browser's wait.
func (p *boardPage) stopWaiting() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// close waits for an open that is under way, which ends with ctx, and prevents others.
func (p *boardPage) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

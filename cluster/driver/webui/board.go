package webui

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// boardPath is where the page of a hosted driver has TensorBoard.
const boardPath = "/tensorboard/"

// boardPage shows the cluster's TensorBoard beside the page of a hosted driver. It is
// started when somebody looks.
type boardPage struct {
	coord interface {
		TensorBoard(ctx context.Context, r *clusterpb.TensorBoardRequest) (*clusterpb.TensorBoardReply, error)
	}
	show func(prefix string, at *clusterpb.TensorBoardReply) http.Handler
	ctx  context.Context // of what opens it
	work sync.WaitGroup  // what opens it

	mu      sync.Mutex
	closed  bool          // guarded by mu
	opening chan struct{} // guarded by mu: closed when it is open, or is not; nil: nobody opens it
	shown   http.Handler  // guarded by mu: nil before it was open
	problem error         // guarded by mu: of the last try to open it
	waiting int           // guarded by mu: browsers that wait for it to open
	unseen  bool          // guarded by mu: the last try's end came while none did
}

// openPatience is how long a browser waits for TensorBoard before it is told that it
// starts.
const openPatience = 3 * time.Second

// starting is shown meanwhile.
const starting = `<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="2"><title>TensorBoard</title></head>
<body><p>TensorBoard is starting.</p></body></html>
`

// ServeHTTP opens TensorBoard, also one that has ended, with its first page; the rest is
// TensorBoard's.
func (p *boardPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == boardPath {
		opened, starts := p.open(), true
		select {
		case <-opened:
			starts = false
		case <-time.After(openPatience):
		case <-r.Context().Done():
		}
		p.leave()
		if starts {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Cache-Control", "no-store")
			_, _ = w.Write([]byte(starting)) // who asked may have gone
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

// open begins to open it, unless that is under way, or has ended since a browser was told
// that it starts, and returns what tells of the end. leave is called after it.
func (p *boardPage) open() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting++
	if p.opening != nil {
		return p.opening
	}
	done := make(chan struct{})
	if p.closed || p.unseen {
		p.unseen = false
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
		p.opening, p.problem, p.unseen = nil, err, p.waiting == 0
		if err == nil {
			p.shown = p.show(boardPath, reply)
		}
	})
	return done
}

// leave is the end of a browser's wait.
func (p *boardPage) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting--
}

// close waits for what opens it, once ctx has ended. Nothing is opened any more.
func (p *boardPage) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.work.Wait()
}

package panel

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// Target is the target name of the comm that the extension opens.
const Target = "tfcluster.v1"

// lease is how long an open comm lives without a message: a page that is reloaded never closes
// its comm. The front end pings every 10 s.
const lease = 45 * time.Second

// mostRequests is the maximum number of a comm's open requests.
const mostRequests = 8

// Actor runs a verb given as words on a session, as a cell does.
type Actor func(ctx context.Context, s *session.State, words []string, out render.Output,
	py bridge.Python,
) (result.Value, error)

// Server serves the comms of one session.
type Server struct {
	Session *session.State
	Act     Actor
	Python  bridge.Python // of the notebook; may be nil
}

// Serve answers one comm until messages is closed, ctx ends or the front end has been silent for
// 45 s. It calls send from several goroutines, until it returns.
func (s *Server) Serve(ctx context.Context, messages <-chan json.RawMessage, send func(any)) {
	ctx, cancel := context.WithCancel(ctx)
	c := &comm{Server: s, ctx: ctx, send: send, open: make(chan struct{}, mostRequests)}
	defer c.work.Wait()
	defer cancel()
	timer := time.NewTimer(lease)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.Session.Context().Done():
			return
		case <-timer.C:
			return
		case raw, ok := <-messages:
			if !ok {
				c.settle()
				return
			}
			timer.Reset(lease)
			c.message(raw)
		}
	}
}

// comm is one open comm.
type comm struct {
	*Server
	ctx  context.Context
	send func(any)
	work sync.WaitGroup
	open chan struct{} // holds a value for each open request

	// of the goroutine of Serve
	watching, following context.CancelFunc // nil: it is not
}

// message is a message of the front end; doc.go lists the types.
type message struct {
	Type    string            `json:"type"`
	Request int64             `json:"request"`
	ID      string            `json:"id"`
	Cluster string            `json:"cluster"`
	Verb    string            `json:"verb"`
	Force   bool              `json:"force"`
	Runs    []int32           `json:"runs"`
	Run     int32             `json:"run"`
	Task    string            `json:"task"`
	Text    string            `json:"text"`
	Last    int32             `json:"last"`
	After   json.RawMessage   `json:"after"` // of samples a time in ms, of lines a position
	Before  map[string]uint64 `json:"before"`
}

// reply is an answer to a request.
type reply map[string]any

// settle waits for open requests when no more messages can come.
func (c *comm) settle() {
	for range mostRequests {
		c.open <- struct{}{}
	}
}

func (c *comm) message(raw json.RawMessage) {
	var m message
	if err := json.Unmarshal(raw, &m); err != nil {
		c.send(reply{"type": "error", "message": "not a message of " + Target})
		return
	}
	switch m.Type {
	case "ping":
		// It only extends the lease: an answer would count as the kernel's activity.
	case "show":
		c.watching = c.replace(c.watching, func(ctx context.Context) { c.watch(ctx, m.Cluster) })
	case "hide":
		c.watching = c.replace(c.watching, nil)
	case "follow":
		c.following = c.replace(c.following, func(ctx context.Context) { c.follow(ctx, m) })
	case "unfollow":
		c.following = c.replace(c.following, nil)
	default:
		c.request(m)
	}
}

// replace ends the work of old and begins other work, unless that is nil.
func (c *comm) replace(old context.CancelFunc, work func(context.Context)) context.CancelFunc {
	if old != nil {
		old()
	}
	if work == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(c.ctx)
	c.work.Go(func() {
		defer cancel()
		work(ctx)
	})
	return cancel
}

// request answers a request beside others.
func (c *comm) request(m message) {
	answer, ok := map[string]func(context.Context, message) (reply, error){
		"tensorboard": c.tensorboard, "board": c.board, "runs": c.runs, "curves": c.curves, "samples": c.samples,
		"page": c.page, "lines_path": c.linesPath, "act": c.act,
	}[m.Type]
	if !ok {
		c.fail(m, fmt.Errorf("this version of tfcluster does not know the panel's message %q: reload the page, "+
			"and restart the kernel", command.Shorten(m.Type, 40)))
		return
	}
	select {
	case c.open <- struct{}{}:
	default:
		c.fail(m, fmt.Errorf("the panel waits for %d answers already: try again in a moment", mostRequests))
		return
	}
	c.work.Go(func() {
		defer func() { <-c.open }()
		r, err := answer(c.ctx, m)
		if err != nil {
			c.fail(m, err)
			return
		}
		r["type"] = m.Type
		if m.Type == "act" {
			r["type"] = "acted"
		}
		c.send(m.answered(r))
	})
}

// answered adds the request's number.
func (m message) answered(r reply) reply {
	if m.Request != 0 {
		r["request"] = m.Request
	}
	return r
}

func (c *comm) fail(m message, err error) {
	if c.ctx.Err() == nil {
		c.send(m.answered(reply{"type": "error", "message": result.NewReport(err).Value}))
	}
}

package spark

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// host is the driver's end of a host process's connection: calls, answered in any order, and
// events.
type host struct {
	conn   net.Conn
	events chan<- hostEvent // never closed; the reader stops at gone
	gone   chan struct{}    // closed when the connection has ended

	out *jsonlines.Writer

	mu sync.Mutex
	// guarded by mu
	last  int
	calls map[int]chan hostReply
}

// hostListener accepts hosts' connections.
type hostListener struct {
	socket     string
	ln         net.Listener
	hostEvents chan hostEvent
}

// hostEvent is an event that a host sends, by _say of spark_host.py.
type hostEvent struct {
	Event     string   `json:"event"` // hello | pending | ended
	Executors []string `json:"executors"`
	Why       string   `json:"why"`

	// of hello
	Key         string `json:"key"` // of a session that a driver made
	Version     string `json:"version"`
	Connect     bool   `json:"connect"`
	Master      string `json:"master"`
	Application string `json:"application"`
	Dynamic     bool   `json:"dynamic"`
	// ExecutorGPUs are those of an executor, GPUs those of each task of the session; "" if none.
	GPUs         string `json:"gpus"`
	ExecutorGPUs string `json:"executor_gpus"`
	UI           string `json:"ui"`
}

type hostReply struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value"`
	Error *string         `json:"error"`
}

// errHostGone is the error of calls after the process with the session, or its thread, has
// ended.
var errHostGone = errors.New("the process with the Spark session has ended: its log is spark.log in the cluster's " +
	"folder; reset makes another session")

// maxLine bounds one message of a host, in bytes.
const maxLine = 16 << 20

// sendTimeout bounds writing a call: a host that is stopped or hangs must not block the
// driver's end.
const sendTimeout = 5 * time.Second

// newHost reads from a connection until it is closed.
func newHost(conn net.Conn, events chan<- hostEvent) *host {
	h := &host{
		conn: conn, out: jsonlines.NewWriter(conn, sendTimeout), events: events, gone: make(chan struct{}),
		calls: map[int]chan hostReply{},
	}
	go h.read() // ends with the connection, then closes gone
	return h
}

func (h *host) read() {
	defer close(h.gone)
	defer h.conn.Close()
	for in := jsonlines.NewReader(h.conn, maxLine); ; {
		var m struct {
			hostEvent
			hostReply
		}
		if err := in.Decode(&m); err != nil {
			return // closed, or not one of our hosts
		}
		if m.Event != "" {
			h.events <- m.hostEvent
			continue
		}
		h.mu.Lock()
		answer := h.calls[m.ID]
		delete(h.calls, m.ID)
		h.mu.Unlock()
		if answer != nil {
			answer <- m.hostReply
		}
	}
}

// call calls the host and decodes its answer into value, unless that is nil.
func (h *host) call(ctx context.Context, op string, args map[string]any, value any) (err error) {
	answer := make(chan hostReply, 1)
	h.mu.Lock()
	h.last++
	id := h.last
	h.calls[id] = answer
	h.mu.Unlock()
	if err := h.send(map[string]any{"id": id, "op": op, "args": args}); err != nil {
		return fmt.Errorf("%w (%w)", errHostGone, err)
	}
	select {
	case reply := <-answer:
		if reply.Error != nil {
			return errors.New(*reply.Error)
		}
		if value == nil {
			return nil
		}
		if err := json.Unmarshal(reply.Value, value); err != nil {
			return errtext.Fault("read the answer of the Spark session's process to %s: %w", op, err)
		}
		return nil
	case <-h.gone:
		return errHostGone
	case <-ctx.Done():
		h.mu.Lock()
		delete(h.calls, id)
		h.mu.Unlock()
		if op == "launch" {
			_ = h.send(map[string]any{"id": 0, "op": "cancel", "args": map[string]any{"launch": id}}) // best effort
		}
		return ctx.Err()
	}
}

func (h *host) send(message any) error {
	err := h.out.Write(message)
	if err != nil {
		h.conn.Close() // a part of a line may have been written
	}
	return err
}

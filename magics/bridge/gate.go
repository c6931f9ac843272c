package bridge

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
	"github.com/tfcluster/tfcluster/internal/unixsock"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Runner executes the requests of Python.
type Runner interface {
	// RunLine runs a magic of Python code. body is the body of a cell magic; nil for a line magic.
	RunLine(ctx context.Context, line string, body *string, out render.Output, py Python) (result.Value, error)
	// RunArgv runs a command of these words.
	RunArgv(ctx context.Context, argv []string, out render.Output, py Python) (result.Value, error)
	// Complete returns the completions at a position of a cell's code.
	Complete(ctx context.Context, code string, cursor int, py Python) *command.Completion
	// EngineSession returns how Python can use the engine's session of a cluster.
	EngineSession(ctx context.Context, cluster string) (map[string]string, error)
	// Shutdown handles the shutdown of the kernel.
	Shutdown(ctx context.Context, restart bool)
}

// Gate listens for the Python shim on a unix socket that only this user can open. A connection serves calls of Go to
// the notebook's objects, or it is one command of Python code.
type Gate struct {
	// static after construction
	session  Runner
	panels   PanelServer
	listener net.Listener
	path     string
	ctx      context.Context
	end      context.CancelFunc
	work     sync.WaitGroup // the accept loop and each connection

	mu sync.Mutex
	// guarded by mu
	objects *caller       // the connection to the notebook's objects; nil: none
	arrived chan struct{} // closed when the first such connection has arrived
	conns   map[net.Conn]struct{}
}

// OpenGate listens on a socket in the runtime directory; Close ends it.
func OpenGate(ctx context.Context, r Runner, p PanelServer) (*Gate, error) {
	dir, err := state.RuntimeDir()
	if err != nil {
		return nil, err
	}
	unixsock.Sweep(filepath.Join(dir, "gate-*.sock")) // left by kernels that were killed
	path := filepath.Join(dir, "gate-"+rand.Text()[:16]+".sock")
	ln, err := unixsock.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("open the socket on which the notebook's Python reaches tfcluster: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	g := &Gate{
		session: r, panels: p, listener: ln, path: path, ctx: ctx, end: end, arrived: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	g.work.Go(g.accept)
	return g, nil
}

// Path returns the path of the socket, for TFCLUSTER_GATE.
func (g *Gate) Path() string { return g.path }

// Close closes all connections, waits for their commands and removes the socket.
func (g *Gate) Close() {
	g.end()
	_ = g.listener.Close() // removes the socket; an error changes nothing for the kernel
	g.mu.Lock()
	for c := range g.conns {
		_ = c.Close() // wakes its reader
	}
	g.mu.Unlock()
	g.work.Wait()
}

func (g *Gate) accept() {
	for {
		conn, err := g.listener.Accept()
		if err != nil {
			if g.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(50 * time.Millisecond) // the process has no free descriptor; it may have one later
			continue
		}
		g.mu.Lock()
		if g.ctx.Err() != nil {
			g.mu.Unlock()
			_ = conn.Close()
			return
		}
		g.conns[conn] = struct{}{}
		g.mu.Unlock()
		g.work.Go(func() {
			g.serve(conn)
			g.mu.Lock()
			delete(g.conns, conn)
			g.mu.Unlock()
			_ = conn.Close() // the peer has its answer
		})
	}
}

// gateMessage is a line from Python.
type gateMessage struct {
	Op      string          `json:"op"`
	Line    string          `json:"line"`
	Cell    *string         `json:"cell"`
	Argv    []string        `json:"argv"`
	ID      uint64          `json:"id"`
	Value   json.RawMessage `json:"value"`
	Error   string          `json:"error"`
	Ename   string          `json:"ename"`
	Restart bool            `json:"restart"`
	Code    string          `json:"code"`
	Cursor  int             `json:"cursor"`
	Cluster string          `json:"cluster"`
	Count   int             `json:"count"` // the n of In[n]; 0: none
	passed
}

// maxMessage bounds a line from Python, in bytes, and its contents: a program with its values, pickled.
const maxMessage = 2 << 30

// helloTimeout is the time that a connection has for its first line.
const helloTimeout = 10 * time.Second

func (g *Gate) serve(conn net.Conn) {
	in := jsonlines.NewFileReader(conn.(*net.UnixConn), maxMessage)
	defer in.Close()
	if err := conn.SetReadDeadline(time.Now().Add(helloTimeout)); err != nil {
		return
	}
	var first gateMessage
	if err := in.Decode(&first); err != nil {
		return
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	c := &caller{gate: g, conn: conn, out: jsonlines.NewWriter(conn, sendTimeout), waiting: map[uint64]chan *gateMessage{}}
	switch first.Op {
	case "objects":
		g.serveObjects(c, in)
	case "magic", "verb":
		g.command(c, in, &first)
	case "engine":
		g.engine(c, &first)
	case "complete":
		g.complete(c, in, &first)
	case "panel":
		g.panel(c, in)
	case "shutdown":
		g.session.Shutdown(g.ctx, first.Restart)
		_ = c.send(map[string]any{"op": "done"})
	}
}

// serveObjects keeps a connection to the notebook's objects. Calls of Go go to the newest one.
func (g *Gate) serveObjects(c *caller, in *jsonlines.Reader) {
	g.mu.Lock()
	g.objects = c
	select {
	case <-g.arrived:
	default:
		close(g.arrived)
	}
	g.mu.Unlock()
	c.listen(in, func() {})
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.objects == c {
		g.objects = nil
	}
}

// Call implements Python over that connection. It waits a short time for a shim that Python is loading.
func (g *Gate) Call(ctx context.Context, fn string, args, reply any) error {
	wait := time.NewTimer(GlanceTimeout)
	defer wait.Stop()
	select {
	case <-g.arrived:
	case <-wait.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	g.mu.Lock()
	c := g.objects
	g.mu.Unlock()
	if c == nil {
		return ErrNoPython
	}
	return c.Call(ctx, fn, args, reply)
}

// complete sends completions. Among them are names of the notebook, for which it asks over the same connection.
func (g *Gate) complete(c *caller, in *jsonlines.Reader, first *gateMessage) {
	var reader sync.WaitGroup
	reader.Go(func() { c.listen(in, func() {}) }) // ends with the connection
	found := g.session.Complete(g.ctx, first.Code, first.Cursor, c)
	_ = c.send(map[string]any{"op": "done", "value": found}) // an error: the peer has closed the connection
	_ = c.conn.Close()                                       // wakes the reader
	reader.Wait()
}

// command runs one magic or verb. Calls to Python's objects go over the same connection.
func (g *Gate) command(c *caller, in *jsonlines.Reader, first *gateMessage) {
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	out := &gateOutput{caller: c, interrupts: make(chan struct{}, 8), count: first.Count}
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the connection, which serve's caller closes
		// After the caller's end its command ends, too; runs continue.
		defer cancel()
		c.listen(in, func() {
			select {
			case out.interrupts <- struct{}{}:
			default:
			}
		})
	})
	var value result.Value
	var err error
	if first.Op == "magic" {
		value, err = g.session.RunLine(ctx, first.Line, first.Cell, out, c)
	} else {
		value, err = g.session.RunArgv(ctx, first.Argv, out, c)
	}
	raw, jerr := result.JSON(value)
	if jerr != nil && err == nil {
		err = errtext.Fault("encode the value: %w", jerr)
	}
	if err != nil {
		raw = []byte("null")
	}
	// An error: the peer has closed the connection.
	_ = c.send(map[string]any{"op": "done", "value": json.RawMessage(raw), "error": result.NewReport(err).WithHelp(false)})
	// Wakes the reader.
	_ = c.conn.Close()
	reader.Wait()
}

// caller is one connection to the shim, with the calls that wait for an answer.
type caller struct {
	conn io.Closer
	out  *jsonlines.Writer
	gate *Gate // nil: none, in tests

	mu      sync.Mutex // guards next, waiting, dead
	next    uint64
	waiting map[uint64]chan *gateMessage
	dead    bool
}

// sendTimeout bounds the time for one line to a Python that does not read.
const sendTimeout = 30 * time.Second

func (c *caller) send(message any) error {
	if err := c.out.Write(message); err != nil {
		if c.out.Torn() {
			_ = c.conn.Close() // no line may follow a part of one
		}
		return fmt.Errorf("write to the notebook's Python: %w", err)
	}
	return nil
}

// Call implements Python for the frame of the code that called.
func (c *caller) Call(ctx context.Context, fn string, args, reply any) error {
	answer := make(chan *gateMessage, 1)
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return ErrNoPython
	}
	c.next++
	id := c.next
	c.waiting[id] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.waiting, id)
		c.mu.Unlock()
		select {
		case m := <-answer: // it came when ctx had ended
			m.close()
		default:
		}
	}()
	if err := c.send(map[string]any{"op": "call", "id": id, "fn": fn, "args": args}); err != nil {
		return fmt.Errorf("%w: %w", err, ErrNoPython)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case m := <-answer:
		defer m.close()
		switch {
		case m == nil:
			return ErrNoPython
		case m.Error != "" || m.Ename != "":
			return &PythonError{Name: m.Ename, Text: m.Error}
		case reply == nil:
			return nil
		}
		err := json.Unmarshal(m.Value, reply)
		if err == nil {
			err = m.hand(reply)
		}
		if err != nil {
			return errtext.Fault("read the answer of the notebook's Python to %s: %w", fn, err)
		}
		return nil
	}
}

// listen reads lines of Python until the connection ends, and passes answers to the calls that wait for them.
func (c *caller) listen(in *jsonlines.Reader, interrupted func()) {
	defer c.gone()
	for {
		var m gateMessage
		if err := in.Decode(&m); err != nil {
			return
		}
		switch m.Op {
		case "reply":
			if tooLong(m.Contents, maxMessage) {
				return // as after a line that is too long
			}
			m.files, m.lost = in.Take(len(m.Contents))
			c.replied(&m)
		case "interrupt":
			interrupted()
		}
	}
}

func (c *caller) replied(m *gateMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.waiting[m.ID]; ch != nil {
		ch <- m // has capacity 1; an id gets one answer
		delete(c.waiting, m.ID)
		return
	}
	m.close()
}

// gone wakes all calls that wait, after the connection has ended.
func (c *caller) gone() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead = true
	for id, ch := range c.waiting {
		ch <- nil
		delete(c.waiting, id)
	}
}

// engine answers Python's Cluster.spark(). The answer may contain a token: it is sent to Python and never shown.
func (g *Gate) engine(c *caller, first *gateMessage) {
	value, err := g.session.EngineSession(g.ctx, first.Cluster)
	answer := map[string]any{"op": "done", "value": value}
	if err != nil {
		answer = map[string]any{"op": "done", "error": result.NewReport(err).WithHelp(false)}
	}
	_ = c.send(answer) // an error: the peer has closed the connection
}

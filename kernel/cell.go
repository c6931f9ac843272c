package kernel

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// cellState is the state of waiting cells and of matched cells.
type cellState struct {
	queue      []*request         // cells that wait
	running    *Cell              // the matched cell that has its turn
	concurrent map[*Cell]struct{} // matched cells that run concurrently
	count      int                // the last execution count
	ticks      []tick             // ticks that the child has not run yet
	hidden     map[string]tick    // ticks sent to the child, by message ID
	lastCell   time.Time          // arrival of the last cell that waits its turn
}

// Cell is a running matched cell. Every output carries the cell's header, so clients never show
// it in another cell. Its methods are safe for concurrent use until Plan.Run has returned.
type Cell struct {
	// Static after construction.
	Code       string
	plan       Plan
	k          *Kernel
	msg        *wire.Message
	exec       wire.ExecuteRequest
	count      int
	interrupts chan struct{}

	mu    sync.Mutex
	name  string          // guarded by mu: stream of the buffered text
	text  strings.Builder // guarded by mu
	timer *time.Timer     // guarded by mu
	sent  time.Time       // guarded by mu: when text was sent
	over  bool            // guarded by mu
}

// ID returns the message ID of the cell's request.
func (c *Cell) ID() string { return c.msg.Header.MsgID }

// ExecutionCount returns the n of In[n].
func (c *Cell) ExecutionCount() int { return c.count }

// Interrupts returns a channel that receives a value for each interrupt while the cell runs.
func (c *Cell) Interrupts() <-chan struct{} { return c.interrupts }

// Stdout writes text.
func (c *Cell) Stdout(text string) { c.write("stdout", text) }

// Stderr writes text that clients show as an error.
func (c *Cell) Stderr(text string) { c.write("stderr", text) }

// Text is buffered up to these limits and sent in one message, because a message per line would
// exceed the server's rate limit.
const (
	gatherTime  = 50 * time.Millisecond
	gatherBytes = 256 << 10
)

func (c *Cell) write(name, text string) {
	if text == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if c.name != name {
		c.flush()
		c.name = name
	}
	c.text.WriteString(text)
	if c.text.Len() >= gatherBytes {
		c.flush()
		return
	}
	if c.timer == nil {
		c.timer = time.AfterFunc(gatherTime, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.flush()
		})
	}
}

// Flush sends the buffered text at once, as the caller has gathered it already. If text was sent less than gatherTime
// ago, the timer sends it.
func (c *Cell) Flush() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over && time.Since(c.sent) >= gatherTime {
		c.flush()
	}
}

// flush sends the buffered text. The caller holds mu.
func (c *Cell) flush() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	if c.text.Len() == 0 {
		return
	}
	c.k.publish("stream", c.msg.RawHeader(), wire.Stream{Name: c.name, Text: c.text.String()})
	c.text.Reset()
	c.sent = time.Now()
}

// Display shows a MIME bundle. With an id, Update can replace it.
func (c *Cell) Display(id string, data, metadata map[string]any) {
	c.show("display_data", id, data, metadata)
}

// Update replaces the display with an id.
func (c *Cell) Update(id string, data, metadata map[string]any) {
	c.show("update_display_data", id, data, metadata)
}

func (c *Cell) show(msgType, id string, data, metadata map[string]any) {
	if metadata == nil {
		metadata = map[string]any{}
	}
	transient := map[string]any{}
	if id != "" {
		transient["display_id"] = id
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.flush()
	c.k.publish(msgType, c.msg.RawHeader(), wire.Display{Data: data, Metadata: metadata, Transient: transient})
}

// interrupt sends an interrupt to the cell, unless two are pending.
func (c *Cell) interrupt() {
	select {
	case c.interrupts <- struct{}{}:
	default:
	}
}

func (k *Kernel) newCell(r *request) *Cell {
	return &Cell{Code: r.exec.Code, plan: r.match.Plan, k: k, msg: r.msg, exec: r.exec, interrupts: make(chan struct{}, 2)}
}

// runQueued runs a matched cell that has its turn. The caller holds mu.
func (k *Kernel) runQueued(r *request) {
	c := k.newCell(r)
	k.reserve(c)
	k.running = c
	k.work.Go(func() {
		reply, failed := k.run(c)
		aborts := failed && c.exec.Stops()
		if aborts {
			k.awaitBurst()
		}
		k.mu.Lock() // held during the reply, so that a failure aborts no cell that arrives after it
		defer k.mu.Unlock()
		k.reply(c.msg, "execute_reply", reply)
		k.running = nil
		k.status(c.msg.RawHeader(), "idle")
		if len(k.concurrent) > 0 {
			k.concurrentBusy()
		}
		if aborts {
			toAbort := k.queue
			k.queue = nil
			k.abort(toAbort)
		}
		k.pump()
	})
}

// runConcurrently runs a matched cell at once.
func (k *Kernel) runConcurrently(r *request) {
	c := k.newCell(r)
	k.mu.Lock()
	k.reserve(c)
	k.concurrent[c] = struct{}{}
	k.mu.Unlock()
	k.work.Go(func() {
		reply, _ := k.run(c)
		k.mu.Lock()
		defer k.mu.Unlock()
		k.reply(c.msg, "execute_reply", reply)
		delete(k.concurrent, c)
		k.status(c.msg.RawHeader(), "idle")
		k.busyAgain()
	})
}

// run runs a matched cell. It returns the reply, which the caller sends, and whether the cell
// failed.
func (k *Kernel) run(c *Cell) (reply any, failed bool) {
	parent := c.msg.RawHeader()
	k.status(parent, "busy")
	if !c.exec.Silent {
		k.publish("execute_input", parent, wire.ExecuteInput{Code: c.Code, ExecutionCount: c.count})
	}
	res := k.guard(c)
	c.mu.Lock()
	c.flush()
	c.over = true
	c.mu.Unlock()
	counted := c.count
	if !c.exec.Stores() {
		counted-- // as in ipykernel: the last count in use
	}
	reply = wire.NewExecuteOK(counted)
	if e := res.Err; e != nil {
		traceback := e.Traceback
		if len(traceback) == 0 {
			traceback = []string{e.Name + ": " + e.Value}
		}
		reply = wire.ExecuteReply{
			Status: "error", ExecutionCount: counted, EName: e.Name, EValue: e.Value, Traceback: traceback,
		}
		// Also for a silent cell, as in ipykernel.
		k.publish("error", parent, wire.Error{EName: e.Name, EValue: e.Value, Traceback: traceback})
	} else if res.Data != nil && !c.exec.Silent {
		k.publish("execute_result", parent,
			wire.ExecuteResult{ExecutionCount: counted, Data: res.Data, Metadata: map[string]any{}})
	}
	if res.After != "" {
		k.mu.Lock()
		k.ticks = append(k.ticks, tick{count: counted, after: res.After})
		k.flushTicks()
		k.mu.Unlock()
	}
	return reply, res.Err != nil
}

// guard runs the cell's plan; a panic fails the cell, not the kernel.
func (k *Kernel) guard(c *Cell) (res Result) {
	defer func() {
		if p := recover(); p != nil {
			logPanic(k.log, "Run", p)
			res = Result{Err: &CellError{Name: "InternalError", Value: fmt.Sprint(p), Traceback: []string{
				fmt.Sprintf("InternalError: %v (a bug in this kernel; the cluster is not affected)", p),
			}}}
		}
	}()
	return c.plan.Run(k.ctx, c)
}

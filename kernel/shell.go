package kernel

import (
	"slices"
	"strconv"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// request is an execute_request in progress.
type request struct {
	msg   *wire.Message
	exec  wire.ExecuteRequest
	match Match
	since time.Time

	// Guarded by Kernel.mu, for a cell that was forwarded:
	seq     uint64     // its sequence number among requests to the child
	sent    bool       // there was a child to send it to
	alone   bool       // no other cell was outstanding then
	seen    progress   // its messages seen so far
	checked progress   // the value of seen at the last check
	toAbort []*request // cells after it that are aborted when it finishes
}

// channel is the child's socket for a message.
type channel int

const (
	shellChannel channel = iota
	controlChannel
	stdinChannel
)

// outgoing is a message for the child.
type outgoing struct {
	to     channel
	frames [][]byte
}

// receive returns the next message of a client that is well-formed, correctly signed and new.
func (k *Kernel) receive(from *zmtp.Router, name string) (*wire.Message, bool) {
	for {
		frames, err := from.Recv()
		if err != nil {
			return nil, false
		}
		if m, ok := k.decode(frames, name); ok {
			return m, true
		}
	}
}

// decode rejects a message that is malformed, not correctly signed or not new.
func (k *Kernel) decode(frames [][]byte, name string) (*wire.Message, bool) {
	m, err := wire.Decode(frames)
	if err == nil {
		err = k.signer.Verify(m)
	}
	if err != nil {
		k.log.Warn("message dropped: its client is not answered, the kernel goes on", "channel", name, "err", err)
		return nil, false
	}
	return m, true
}

// fromClient handles a message of a client's shell socket, on the goroutine that read it.
func (k *Kernel) fromClient(frames zmtp.Message) {
	if !k.awaitOpen() {
		return
	}
	m, ok := k.decode(frames, "shell")
	if !ok {
		return
	}
	switch m.Header.MsgType {
	case "execute_request":
		k.execute(m)
	case "complete_request", "inspect_request":
		k.ask(m)
	case "comm_open", "comm_msg", "comm_close":
		if !k.comm(m) {
			k.forward(shellChannel, m.Frames)
		}
	case "shutdown_request":
		k.shutdown(m, k.shell.Send)
	default:
		k.pass(shellChannel, m)
	}
}

// forward sends a message to the child, or keeps it until there is a child.
func (k *Kernel) forward(to channel, frames [][]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.forwardLocked(to, frames)
}

func (k *Kernel) forwardLocked(to channel, frames [][]byte) {
	if k.child == nil {
		if k.broken == "" {
			k.waiting = append(k.waiting, outgoing{to, frames})
		}
		return
	}
	k.child.send(outgoing{to, frames})
}

// execute queues a cell, or runs it at once if it matched with mode Now.
func (k *Kernel) execute(m *wire.Message) {
	r := &request{msg: m, since: time.Now()}
	if m.Unmarshal(&r.exec) == nil { // otherwise the child gets it in its turn and may or may not accept it
		r.match = k.cfg.Interceptor.Match(r.exec.Code)
	}
	subshell := m.Header.Subshell != ""
	switch {
	case r.match.Mode == Now, r.match.Mode == Queue && subshell:
		k.runConcurrently(r)
	case subshell:
		k.pass(shellChannel, m)
	default:
		k.mu.Lock()
		k.queue = append(k.queue, r)
		k.pump()
		waits := r.match.NowHint && len(k.queue) > 0 && k.queue[len(k.queue)-1] == r
		// Cells that arrive together, as with Run All, are meant to wait for one another: no
		// hint.
		waits = waits && r.since.Sub(k.lastCell) > runAllGap
		k.lastCell = r.since
		k.mu.Unlock()
		if waits {
			time.AfterFunc(hintAfter, func() { k.hint(r) })
		}
	}
}

// runAllGap is the longest interval between cells of Run All.
const runAllGap = 300 * time.Millisecond

// hintAfter is how long a cell waits before it shows what it waits for.
const hintAfter = time.Second

// hint shows in a waiting cell what it waits for.
func (k *Kernel) hint(r *request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.queue, r) || k.ending {
		return
	}
	k.publish("stream", r.msg.RawHeader(),
		wire.Stream{Name: "stderr", Text: "waits for cell [" + strconv.Itoa(k.busyCount()) + "]; add --now\n"})
}

// busyCount returns the count of the running cell. The caller holds mu.
func (k *Kernel) busyCount() int {
	if k.running != nil {
		return k.running.count
	}
	return k.count + 1
}

// pump forwards Python cells at once and runs matched cells between them. The caller holds mu.
func (k *Kernel) pump() {
	for len(k.queue) > 0 && k.running == nil && !k.ending {
		r := k.queue[0]
		if r.match.Mode == Queue {
			if len(k.outstanding) > 0 {
				return
			}
			k.queue = k.queue[1:]
			k.runQueued(r)
			return
		}
		if k.broken != "" {
			k.queue = k.queue[1:]
			k.refuse(r, k.broken)
			continue
		}
		if len(k.ticks) > 0 && len(k.outstanding) > 0 {
			return // a concurrent cell has a count that this cell must not get
		}
		k.flushTicks()
		if k.repair != "" || len(k.hidden) > 0 {
			return // wait until the child has counted the matched cells: an interrupt may hit a tick
		}
		k.queue = k.queue[1:]
		k.track(r)
		k.forwardLocked(shellChannel, r.msg.Frames)
	}
}

// fromShell handles the child's messages on shell.
func (k *Kernel) fromShell(frames [][]byte) {
	msgType, parent, ok := wire.Peek(frames)
	if !ok {
		return
	}
	if hidden(parent) {
		k.marked(parent, frames[len(frames)-1], true)
		k.ticked(parent, frames[len(frames)-1])
		return
	}
	switch msgType {
	case "execute_reply":
		k.executed(frames, parent)
		return
	case "kernel_info_reply":
		frames = k.addBanner(frames)
	case "comm_info_reply":
		frames = k.addComms(frames)
	case "shutdown_reply":
		return
	}
	k.replyPassed(parent)
	k.shell.Send(frames)
}

// executed forwards an execute_reply.
func (k *Kernel) executed(frames [][]byte, parent string) {
	k.mu.Lock() // held during Send, so that a failure aborts no cell that arrives after the reply
	defer k.mu.Unlock()
	k.shell.Send(frames) // first of all: a client waits for it
	var reply struct {   // the traceback and the like are not read
		Status         string `json:"status"`
		ExecutionCount int    `json:"execution_count"`
	}
	if m, err := wire.Split(frames); err != nil || m.Unmarshal(&reply) != nil {
		reply.Status = "error"
	}
	r := k.awaiting(parent, replied)
	if r == nil {
		return // of a subshell
	}
	r.seen |= replied
	if reply.ExecutionCount > 0 && r.exec.Stores() { // may be lower than before: %reset restarts the count
		k.count = reply.ExecutionCount
	}
	if reply.Status == "aborted" && r.alone { // no cell before it could have failed
		k.endAborting()
	}
	if reply.Status == "error" && r.exec.Stops() { // cells that arrive later are not aborted
		last := k.outstanding[len(k.outstanding)-1] // the child itself aborts the cells up to this one
		last.toAbort, k.queue = append(last.toAbort, k.queue...), nil
	}
	k.finish(r)
}

// abort answers cells that waited after a failed one. The caller holds mu.
func (k *Kernel) abort(toAbort []*request) {
	for _, r := range toAbort {
		k.status(r.msg.RawHeader(), "busy")
		k.reply(r.msg, "execute_reply", wire.ExecuteReply{Status: "aborted", ExecutionCount: k.count})
		k.status(r.msg.RawHeader(), "idle")
	}
}

// pythonDied is the error name of cells whose child process has ended.
const pythonDied = "PythonDied"

// refuse answers a cell that cannot run with an error. The caller holds mu.
func (k *Kernel) refuse(r *request, why string) {
	k.status(r.msg.RawHeader(), "busy")
	k.fail(r, pythonDied, why)
	k.status(r.msg.RawHeader(), "idle")
}

// reply answers a request on shell.
func (k *Kernel) reply(to *wire.Message, msgType string, content any) {
	k.shell.Send(k.signer.Make(to.Identities(), msgType, to.RawHeader(), content))
}

// addBanner puts this kernel's banner before the child's.
func (k *Kernel) addBanner(frames [][]byte) [][]byte {
	m, err := wire.Decode(frames)
	if err != nil {
		return frames
	}
	var info map[string]any
	if m.Unmarshal(&info) != nil {
		return frames
	}
	banner, _ := info["banner"].(string)
	if k.cfg.Banner != "" {
		info["banner"] = k.cfg.Banner + "\n" + banner
	}
	return k.signer.Resign(m, info)
}

// ask answers completion and inspection through the Interceptor, or forwards the request to the
// child.
func (k *Kernel) ask(m *wire.Message) {
	var q wire.CursorRequest
	if m.Unmarshal(&q) != nil {
		k.pass(shellChannel, m)
		return
	}
	k.work.Go(func() { // the Interceptor may have to ask the child; shell must not wait for it
		if m.Header.MsgType == "complete_request" {
			if c, ok := k.cfg.Interceptor.Complete(k.ctx, q.Code, q.Cursor); ok {
				if c.Matches == nil {
					c.Matches = []string{}
				}
				k.answer(m, "complete_reply", map[string]any{
					"status": "ok", "matches": c.Matches, "cursor_start": c.Start, "cursor_end": c.End, "metadata": map[string]any{},
				})
				return
			}
		} else if data, ok := k.cfg.Interceptor.Inspect(k.ctx, q.Code, q.Cursor); ok {
			k.answer(m, "inspect_reply",
				map[string]any{"status": "ok", "found": true, "data": data, "metadata": map[string]any{}})
			return
		}
		k.pass(shellChannel, m)
	})
}

func (k *Kernel) answer(m *wire.Message, msgType string, content any) {
	k.status(m.RawHeader(), "busy")
	k.reply(m, msgType, content)
	k.idle(m.RawHeader())
}

// idle ends a request that ran concurrently. Clients take the last status for the kernel's, so
// a busy of the cell that still runs follows.
func (k *Kernel) idle(parent []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status(parent, "idle")
	k.busyAgain()
}

// busyAgain publishes busy for a cell that still runs. The caller holds mu.
func (k *Kernel) busyAgain() {
	if k.running != nil {
		k.status(k.running.msg.RawHeader(), "busy")
		return
	}
	for _, r := range k.outstanding {
		if r.seen&idled == 0 {
			k.status(r.msg.RawHeader(), "busy")
			return
		}
	}
	k.concurrentBusy()
}

// concurrentBusy publishes busy for a concurrent cell that still runs. The caller holds mu.
func (k *Kernel) concurrentBusy() {
	for c := range k.concurrent {
		k.status(c.msg.RawHeader(), "busy")
		return
	}
}

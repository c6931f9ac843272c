package kernel

import (
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// request is an execute_request on its way.
type request struct {
	msg   *wire.Message
	exec  wire.ExecuteRequest
	match Match
	since time.Time

	// Guarded by Kernel.mu, of a cell that was forwarded.
	seq     uint64     // its place among what was sent to the child
	given   bool       // there was a child to send it to
	alone   bool       // no other cell was on its way then
	seen    progress   // what came of it
	checked progress   // what had come at the last look
	doomed  []*request // what is aborted behind it
}

// channel names the child's socket a message goes to.
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

// receive takes the next message of a client that is well formed, signed and new.
func (k *Kernel) receive(recv func() ([][]byte, error), name string) (*wire.Message, bool) {
	for {
		frames, err := recv()
		if err != nil {
			return nil, false
		}
		if m, ok := k.decode(frames, name); ok {
			return m, true
		}
	}
}

// decode refuses a message that is malformed, not signed or not new.
func (k *Kernel) decode(frames [][]byte, name string) (*wire.Message, bool) {
	m, err := wire.Decode(frames)
	if err == nil {
		err = k.signer.Verify(m)
	}
	if err != nil {
		k.log.Warn("message dropped", "channel", name, "err", err)
		return nil, false
	}
	return m, true
}

// fromClient takes a message of a client's shell, on the goroutine that read it.
func (k *Kernel) fromClient(frames zmtp.Message) {
	if !k.isOpen() {
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

// forward sends to the child, or keeps the message until there is one.
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

// execute queues a cell, or runs it beside the others when that was asked for.
func (k *Kernel) execute(m *wire.Message) {
	r := &request{msg: m, since: time.Now()}
	if m.Unmarshal(&r.exec) == nil { // else it is the child's, which may read it or not, in its turn
		r.match = k.cfg.Interceptor.Match(r.exec.Code)
	}
	subshell := m.Header.Subshell != ""
	switch {
	case r.match.Mode == Now, r.match.Mode == Queue && subshell:
		k.runBeside(r)
	case subshell:
		k.pass(shellChannel, m)
	default:
		k.mu.Lock()
		k.queue = append(k.queue, r)
		k.pump()
		waits := r.match.NowHint && len(k.queue) > 0 && k.queue[len(k.queue)-1] == r
		// Cells that come in one go, as by Run All, are to wait for one another.
		waits = waits && r.since.Sub(k.lastCell) > sameBreath
		k.lastCell = r.since
		k.mu.Unlock()
		if waits {
			time.AfterFunc(hintAfter, func() { k.hint(r) })
		}
	}
}

// sameBreath is how close upon one another the cells of Run All come.
const sameBreath = 300 * time.Millisecond

// hintAfter is how long a cell waits until it says what for.
const hintAfter = time.Second

// hint tells a waiting cell's reader what it waits for.
func (k *Kernel) hint(r *request) {
	k.mu.Lock()
	defer k.mu.Unlock()
	waits := false
	for _, q := range k.queue {
		waits = waits || q == r
	}
	if !waits || k.dying {
		return
	}
	k.publish("stream", r.msg.RawHeader(), wire.Stream{Name: "stderr", Text: "waits for cell " + bracket(k.busyCount()) + "; add --now\n"})
}

// busyCount is the count of the cell that runs. Caller holds mu.
func (k *Kernel) busyCount() int {
	if k.running != nil {
		return k.running.count
	}
	return k.count + 1
}

// pump forwards Python cells at once; a matched cell is a barrier before and behind.
// Caller holds mu.
func (k *Kernel) pump() {
	for len(k.queue) > 0 && k.running == nil && !k.dying {
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
			return // a cell beside took a number that this one must not get
		}
		k.flushTicks()
		if k.repair != "" || len(k.hidden) > 0 {
			return // until the child is known to count on behind matched cells: an interrupt may hit a tick
		}
		k.queue = k.queue[1:]
		k.track(r)
		k.forwardLocked(shellChannel, r.msg.Frames)
	}
}

// fromShell takes the child's answers on shell.
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
		frames = k.introduce(frames)
	case "comm_info_reply":
		frames = k.addComms(frames)
	case "shutdown_reply":
		return
	}
	k.shell.Send(frames)
}

// executed passes an execute_reply on.
func (k *Kernel) executed(frames [][]byte, parent string) {
	var reply wire.ExecuteReply
	if m, err := wire.Decode(frames); err != nil || m.Unmarshal(&reply) != nil {
		reply.Status = "error"
	}
	k.mu.Lock() // from the answer on, so that a failure aborts nothing that comes after it
	defer k.mu.Unlock()
	k.shell.Send(frames)
	r := k.lacking(parent, replied)
	if r == nil {
		return // a subshell's
	}
	r.seen |= replied
	if reply.ExecutionCount > 0 && r.exec.Stores() { // it may be lower: %reset begins anew
		k.count = reply.ExecutionCount
	}
	if reply.Status == "aborted" && r.alone { // behind no cell that could have failed
		k.endAborting()
	}
	if reply.Status == "error" && r.exec.Stops() { // not what comes from now on
		last := k.outstanding[len(k.outstanding)-1] // the child aborts those between first
		last.doomed, k.queue = append(last.doomed, k.queue...), nil
	}
	k.finish(r)
}

// abort answers what waited behind a failed cell. Caller holds mu.
func (k *Kernel) abort(doomed []*request) {
	for _, r := range doomed {
		k.status(r.msg.RawHeader(), "busy")
		k.reply(r.msg, "execute_reply", wire.ExecuteReply{Status: "aborted", ExecutionCount: k.count})
		k.status(r.msg.RawHeader(), "idle")
	}
}

// pythonDied is the name of the error that cells of a dead child end with.
const pythonDied = "PythonDied"

// refuse answers a cell that cannot run with an error. Caller holds mu.
func (k *Kernel) refuse(r *request, why string) {
	k.status(r.msg.RawHeader(), "busy")
	k.fail(r, pythonDied, why)
	k.status(r.msg.RawHeader(), "idle")
}

// reply answers a request on shell.
func (k *Kernel) reply(to *wire.Message, msgType string, content any) {
	k.shell.Send(k.signer.Make(to.Identities(), msgType, to.RawHeader(), content))
}

// introduce puts our banner before the child's.
func (k *Kernel) introduce(frames [][]byte) [][]byte {
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

// ask answers completion and inspection, or leaves them to the child.
func (k *Kernel) ask(m *wire.Message) {
	var q wire.CursorRequest
	if m.Unmarshal(&q) != nil {
		k.forward(shellChannel, m.Frames)
		return
	}
	k.work.Go(func() { // it may have to ask the child, so shell goes on
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
			k.answer(m, "inspect_reply", map[string]any{"status": "ok", "found": true, "data": data, "metadata": map[string]any{}})
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

// idle ends a request that ran beside others: a client takes the last status for the
// kernel's, so whatever is still running is busy again.
func (k *Kernel) idle(parent []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.status(parent, "idle")
	k.busyAgain()
}

// busyAgain says that a cell still runs. Caller holds mu.
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
	k.besideBusy()
}

// besideBusy says that a cell beside still runs. Caller holds mu.
func (k *Kernel) besideBusy() {
	for c := range k.beside {
		k.status(c.msg.RawHeader(), "busy")
		return
	}
}

package kernel

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// ipykernel does not answer every cell. An interrupt that arrives while a cell ends makes it
// drop the reply; a request that it cannot parse gets no reply or no message at all; a flood of
// output may drop a status. A missing message cannot be distinguished from a late one by time.
// So the kernel sends a marker: a hidden silent cell, after the cells in question. The child
// serves shell in order: once it answers the marker on a socket, messages of earlier cells that
// have not arrived on that socket are lost.

const (
	// lostCheck is the interval at which outstanding cells are checked. A message that is
	// overdue for one to two intervals causes a marker.
	lostCheck = 100 * time.Millisecond
	// runningCheck is the same for a running cell, whose last two messages may both be lost.
	runningCheck = 5 * time.Second
	// Pauses between markers while the first is not answered: it may be lost as well.
	firstMarkerPause = time.Second
	mostMarkerPause  = time.Minute
)

const markerPrefix = hiddenPrefix + "marker-"

// markers is the state of the markers sent to the child.
type markers struct {
	sent         uint64 // sequence number of the last one
	shell, iopub uint64 // the latest one answered on each socket
	at           time.Time
	pause        time.Duration
}

// checkPlan is the interval of the next check of outstanding cells.
type checkPlan uint8

const (
	notWatched checkPlan = iota
	watchedSlowly
	watchedClosely
)

// watchLost schedules a check of the outstanding cells. The caller holds mu.
func (k *Kernel) watchLost() {
	if k.checkPlan != watchedClosely {
		k.watchIn(watchedClosely, lostCheck)
	}
}

func (k *Kernel) watchIn(l checkPlan, d time.Duration) {
	k.checkPlan = l
	if k.watchTimer == nil {
		k.watchTimer = time.AfterFunc(d, k.checkLost)
		return
	}
	k.watchTimer.Reset(d)
}

// checkLost sends a marker if a message of a cell is overdue.
func (k *Kernel) checkLost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	slowly := k.checkPlan == watchedSlowly
	k.checkPlan = notWatched
	if len(k.outstanding) == 0 && len(k.hidden) == 0 || k.ending || k.ctx.Err() != nil {
		return
	}
	runs, late := k.overdue(slowly)
	if runs {
		k.watchIn(watchedSlowly, runningCheck)
	} else {
		k.watchLost()
	}
	if late && k.child != nil {
		k.mark(runs)
	}
}

// overdue reports whether the child runs a cell, according to its messages, and whether a
// message of a cell is overdue since the last check. The caller holds mu.
func (k *Kernel) overdue(slowly bool) (runs, late bool) {
	for _, r := range k.outstanding {
		runs = runs || r.seen == begun
	}
	for _, r := range k.outstanding {
		again := r.checked == r.seen
		r.checked = r.seen
		switch {
		case r.seen == begun:
			late = late || again && slowly
		case r.seen == 0: // it waits for another cell, or the child is blocked
			late = late || again && !runs
		default:
			late = late || again
		}
	}
	for id, t := range k.hidden {
		late = late || t.checked && !runs
		t.checked = true
		k.hidden[id] = t
	}
	return runs, late
}

// mark sends a marker, unless one is outstanding and may be waiting for a running cell. The
// caller holds mu.
func (k *Kernel) mark(runs bool) {
	m := &k.marks
	switch {
	case m.sent <= min(m.shell, m.iopub):
		m.pause = firstMarkerPause
	case runs && m.sent > max(m.shell, m.iopub), time.Since(m.at) < m.pause:
		return
	default:
		m.pause = min(2*m.pause, mostMarkerPause)
	}
	k.seq++
	m.sent, m.at = k.seq, time.Now()
	id := markerPrefix + strconv.FormatUint(m.sent, 10)
	// A silent cell has no effects; its reply contains the count. An aborted one is answered
	// too.
	k.forwardLocked(shellChannel,
		k.signer.MakeRequest(id, "execute_request", wire.ExecuteRequest{Silent: true, UserExpressions: map[string]any{}}))
}

// marked handles the answer to a marker: its reply on shell, or a status on IOPub.
func (k *Kernel) marked(id string, content []byte, onShell bool) {
	number, isMarker := strings.CutPrefix(id, markerPrefix)
	if !isMarker {
		return
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return // of a client that uses the same prefix
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if seq > k.marks.sent {
		return
	}
	if onShell {
		k.marks.shell = max(k.marks.shell, seq)
		k.countAt(seq, content)
		k.hideLost(seq)
	} else {
		k.marks.iopub = max(k.marks.iopub, seq)
	}
	for r := k.nextLost(); r != nil; r = k.nextLost() {
		k.endLost(r)
	}
}

// countAt sets the count from a marker's reply if an earlier cell lost its reply. The caller
// holds mu.
func (k *Kernel) countAt(seq uint64, content []byte) {
	var reply wire.ExecuteReply
	if json.Unmarshal(content, &reply) != nil || reply.Status != "ok" {
		return // aborted: the next reply with a count corrects k.count
	}
	for _, r := range k.outstanding {
		if r.seq < seq && r.seen&replied == 0 {
			k.count = reply.ExecutionCount
			return
		}
	}
}

// nextLost returns a cell that the child has finished although a message is missing. The caller
// holds mu.
func (k *Kernel) nextLost() *request {
	for _, r := range k.outstanding {
		pastReply, pastIdle := r.seq < k.marks.shell, r.seq < k.marks.iopub
		if (pastReply || r.seen&replied != 0) && (pastIdle || r.seen&idled != 0) {
			return r
		}
	}
	return nil
}

// replyLost is the error name of a cell whose reply was lost.
const replyLost = "ReplyLost"

// endLost sends the missing messages to the client and continues with the queue. As in
// ipykernel, a lost reply aborts no cells. The caller holds mu.
func (k *Kernel) endLost(r *request) {
	k.drop(r)
	parent := r.msg.RawHeader()
	if r.seen&replied == 0 {
		why := r.lostWhy()
		k.log.Warn("the notebook's Python sent no reply to a request, which ends with an error",
			"msg_id", r.msg.Header.MsgID, "why", why)
		if r.seen&begun == 0 || r.seen&idled != 0 {
			k.status(parent, "busy")
		}
		k.fail(r, replyLost, why)
		r.seen &^= idled
	}
	if r.seen&idled == 0 {
		k.status(parent, "idle")
		k.busyAgain()
	}
	k.abort(r.toAbort)
	k.flushTicks()
	k.pump()
}

// malformed reports whether the content has no code that could run.
func (r *request) malformed() bool {
	var content struct {
		Code *string `json:"code"`
	}
	return json.Unmarshal(r.msg.Content(), &content) != nil || content.Code == nil
}

// lostWhy returns why a cell has no reply, and what the user can do.
func (r *request) lostWhy() string {
	switch {
	case r.malformed():
		return "Python rejected this execute_request: its content violates the Jupyter protocol. Nothing ran; " +
			"send it with a code that is a string"
	case r.seen&begun == 0:
		return "Python could not read this execute_request and dropped it. Nothing ran; send it again without JSON that " +
			"Python cannot parse (nesting beyond 1000 levels, text that is not UTF-8)"
	}
	return "Python ended this cell without a reply, which happens when an interrupt arrives while a cell ends. " +
		"Its results may exist; check its variables, or run it again"
}

// fail publishes an error and replies with it. The caller holds mu.
func (k *Kernel) fail(r *request, name, why string) {
	e := wire.Error{EName: name, EValue: why, Traceback: []string{name + ": " + why}}
	k.publish("error", r.msg.RawHeader(), e)
	k.reply(r.msg, "execute_reply",
		wire.ExecuteReply{Status: "error", ExecutionCount: k.count, EName: e.EName, EValue: e.EValue, Traceback: e.Traceback})
}

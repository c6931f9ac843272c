package kernel

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// ipykernel does not answer every cell. An interrupt that arrives while a cell ends makes it drop
// the reply, a request that it cannot read gets no reply or no sign at all, and a flood of output
// may cost a status. What is missing cannot be told from what is late by time, so a marker asks:
// a hidden silent cell, sent behind the cells in question. The child serves shell in order, so once
// it answers the marker on a socket, whatever an earlier cell did not send there is lost.

const (
	// lostCheck is how soon the cells that the child holds are looked at. A sign that is still missing
	// after one to two of these, although it should have come, is asked for by a marker.
	lostCheck = 100 * time.Millisecond
	// runningCheck is the same for a cell that runs, whose two last signs may both be lost.
	runningCheck = 5 * time.Second
	// Pauses between two markers while the first is not answered: it may be lost as well.
	firstMarkerPause = time.Second
	mostMarkerPause  = time.Minute
)

const markerPrefix = hiddenPrefix + "marker-"

// markers is what is known of the markers sent to the child.
type markers struct {
	sent         uint64 // the number of the last one
	shell, iopub uint64 // the latest that was answered on each socket
	at           time.Time
	pause        time.Duration
}

// lookout is when the outstanding cells are looked at next.
type lookout uint8

const (
	notWatched lookout = iota
	watchedSlowly
	watchedClosely
)

// watchLost has the outstanding cells looked at soon. Caller holds mu.
func (k *Kernel) watchLost() {
	if k.lookout != watchedClosely {
		k.watchIn(watchedClosely, lostCheck)
	}
}

func (k *Kernel) watchIn(l lookout, d time.Duration) {
	k.lookout = l
	if k.watchTimer == nil {
		k.watchTimer = time.AfterFunc(d, k.checkLost)
		return
	}
	k.watchTimer.Reset(d)
}

// checkLost sends a marker when a cell lacks a sign for too long.
func (k *Kernel) checkLost() {
	k.mu.Lock()
	defer k.mu.Unlock()
	slowly := k.lookout == watchedSlowly
	k.lookout = notWatched
	if len(k.outstanding) == 0 && len(k.hidden) == 0 || k.dying || k.ctx.Err() != nil {
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

// overdue tells whether the child is at work on a cell, as far as its signs say, and whether a cell
// lacks a sign that should have come, and lacked it at the check before. Caller holds mu.
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
		case r.seen == 0: // it waits for another cell, or for whatever keeps the child
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

// mark sends a marker, unless one is on its way: one that has no answer waits behind a cell that
// runs. Caller holds mu.
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
	// A silent cell changes nothing, and its reply says the count; one that is aborted is answered too.
	k.forwardLocked(shellChannel, k.signer.MakeRequest(id, "execute_request", wire.ExecuteRequest{Silent: true, UserExpressions: map[string]any{}}))
}

// marked takes a marker's answer: its reply on shell, a status on IOPub.
func (k *Kernel) marked(id string, content []byte, onShell bool) {
	number, isMarker := strings.CutPrefix(id, markerPrefix)
	if !isMarker {
		return
	}
	seq, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return // a client's, that borrows our prefix
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

// countAt takes the count from a marker's reply when a cell before it lost its own. Caller holds mu.
func (k *Kernel) countAt(seq uint64, content []byte) {
	var reply wire.ExecuteReply
	if json.Unmarshal(content, &reply) != nil || reply.Status != "ok" {
		return // aborted: the next reply with a count corrects ours
	}
	for _, r := range k.outstanding {
		if r.seq < seq && r.seen&replied == 0 {
			k.count = reply.ExecutionCount
			return
		}
	}
}

// nextLost finds a cell that the child has done with although a sign never came. Caller holds mu.
func (k *Kernel) nextLost() *request {
	for _, r := range k.outstanding {
		pastReply, pastIdle := r.seq < k.marks.shell, r.seq < k.marks.iopub
		if (pastReply || r.seen&replied != 0) && (pastIdle || r.seen&idled != 0) {
			return r
		}
	}
	return nil
}

// replyLost is the name of the error that a cell without a reply ends with.
const replyLost = "ReplyLost"

// endLost sends a client what the child did not, and lets the queue go on: a lost reply aborts
// nothing, as in ipykernel. Caller holds mu.
func (k *Kernel) endLost(r *request) {
	k.drop(r)
	parent := r.msg.RawHeader()
	if r.seen&replied == 0 {
		why := r.lostWhy()
		k.log.Warn("the child sent no reply", "msg_id", r.msg.Header.MsgID, "why", why)
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
	k.abort(r.doomed)
	k.flushTicks()
	k.pump()
}

// malformed is whether the content has no code that could run.
func (r *request) malformed() bool {
	var content struct {
		Code *string `json:"code"`
	}
	return json.Unmarshal(r.msg.Content(), &content) != nil || content.Code == nil
}

// lostWhy says what became of a cell without a reply, and what to do.
func (r *request) lostWhy() string {
	switch {
	case r.malformed():
		return "Python does not take this execute_request: its content is not what the Jupyter protocol says. Nothing ran; send it with a code that is a string"
	case r.seen&begun == 0:
		return "Python could not read this execute_request and dropped it. Nothing ran; send it again without what JSON in Python refuses (nesting beyond 1000 levels, text that is not UTF-8)"
	}
	return "Python ended this cell without a reply, as it does when an interrupt arrives while a cell ends. What it computed may be there; look at its variables, or run it again"
}

// fail publishes an error and replies with it. Caller holds mu.
func (k *Kernel) fail(r *request, name, why string) {
	e := wire.Error{EName: name, EValue: why, Traceback: []string{name + ": " + why}}
	k.publish("error", r.msg.RawHeader(), e)
	k.reply(r.msg, "execute_reply", wire.ExecuteReply{Status: "error", ExecutionCount: k.count, EName: e.EName, EValue: e.EValue, Traceback: e.Traceback})
}

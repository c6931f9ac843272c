package kernel

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// tick is a hidden request to the child when it is idle: it records a cell that the child did
// not run, or runs Python code that the cell left for it (Result.After).
type tick struct {
	count  int
	code   string // the cell's code, if it counts
	after  string // Python
	failed int    // number of failed attempts

	seq     uint64 // its sequence number among requests to the child
	checked bool   // it was outstanding at the last check
}

// hiddenPrefix marks IDs of requests by this kernel: their answers are not forwarded.
const hiddenPrefix = "tfcluster-hidden-"

func hidden(parentID string) bool { return strings.HasPrefix(parentID, hiddenPrefix) }

// nextCount returns the count of a matched cell that begins now: after the cells sent to the
// child and the ticks it has not run yet. The caller holds mu.
func (k *Kernel) nextCount() int {
	n := k.count
	for _, r := range k.outstanding {
		if r.exec.Stores() {
			n++
		}
	}
	for _, t := range k.ticks {
		n = max(n, t.count)
	}
	return n + 1
}

// reserve assigns a matched cell its count. A tick informs the child before any later cell, so
// that no two cells have the same count. The caller holds mu.
func (k *Kernel) reserve(c *Cell) {
	c.count = k.nextCount()
	if c.exec.Stores() {
		k.ticks = append(k.ticks, tick{count: c.count, code: c.Code})
		k.flushTicks()
	}
}

// flushTicks sends the ticks to the child if no cell is outstanding: a failing cell would abort
// queued ticks. The caller holds mu.
func (k *Kernel) flushTicks() {
	if len(k.outstanding) > 0 || len(k.ticks) == 0 || k.child == nil && k.broken == "" {
		return
	}
	slices.SortStableFunc(k.ticks, func(a, b tick) int { return cmp.Compare(a.count, b.count) })
	for _, t := range k.ticks {
		k.count = max(k.count, t.count)
		if k.child != nil {
			k.hide(t)
		}
	}
	k.ticks = nil
}

// skipTicks drops the ticks of a child that has ended; the next child continues the count after
// them. The values they would have stored are lost. The caller holds mu.
func (k *Kernel) skipTicks() {
	for _, t := range k.ticks {
		k.count = max(k.count, t.count)
	}
	k.ticks = nil
}

// hide sends a tick to the child as a hidden request. The caller holds mu.
func (k *Kernel) hide(t tick) {
	id := hiddenPrefix + wire.NewID()
	if k.hidden == nil {
		k.hidden = make(map[string]tick)
	}
	k.seq++
	t.seq, t.checked = k.seq, false
	k.hidden[id] = t
	k.watchLost()
	k.forwardLocked(shellChannel, k.signer.MakeRequest(id, "execute_request", wire.ExecuteRequest{
		Code: t.python(), Silent: true, UserExpressions: map[string]any{},
	}))
}

// tickRetries is how often a tick is retried, each time but the first after a pause.
const (
	tickRetries = 5
	tickPause   = 50 * time.Millisecond
)

// ticked handles the child's answer to a hidden request. A tick that was aborted with the cells
// after a failing one, or hit by an interrupt, is sent again.
func (k *Kernel) ticked(id string, content []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t, ok := k.hidden[id]
	if !ok {
		return
	}
	delete(k.hidden, id)
	defer k.pump() // cells may wait for it
	aborted := bytes.Contains(content, []byte(`"aborted"`))
	if !aborted && !bytes.Contains(content, []byte(`"KeyboardInterrupt"`)) || t.failed >= tickRetries {
		if bytes.Contains(content, []byte(`"error"`)) {
			k.log.Warn("a request of the kernel's own failed in the notebook's Python; cells go on", "reply", string(content))
		}
		return
	}
	if t.failed++; t.failed == 1 {
		k.hide(t)
		return
	}
	if aborted {
		k.endAborting()
	}
	time.AfterFunc(tickPause, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !k.ending && k.child != nil {
			k.hide(t)
		}
	})
}

// hideLost sends again the ticks without an answer that were sent before a marker which the
// child has answered. The caller holds mu.
func (k *Kernel) hideLost(marker uint64) {
	var lost []tick
	for id, t := range k.hidden {
		if t.seq < marker {
			delete(k.hidden, id)
			lost = append(lost, t)
		}
	}
	slices.SortFunc(lost, func(a, b tick) int { return cmp.Compare(a.seq, b.seq) })
	for _, t := range lost {
		if t.failed++; t.failed <= tickRetries && k.child != nil {
			k.hide(t)
		}
	}
	k.pump()
}

// tickSource records the cell as IPython would: In, history, counter. It pads the lists if
// earlier cells were aborted or ran in a child that ended.
const tickSource = `
h = ip.history_manager
if ip.execution_count <= __count__:
    ip.execution_count = __count__
    for l in (h.input_hist_parsed, h.input_hist_raw):
        l.extend([""] * (__count__ - len(l)))
    if __code__:
        h.store_inputs(__count__, __code__)
        ip.execution_count = __count__ + 1
`

// python returns the tick as one statement that leaves no name behind.
func (t tick) python() string {
	source := t.after
	if t.after == "" {
		source = tickSource
	}
	return fmt.Sprintf(`exec(%s, {"ip": __import__("IPython").get_ipython(), "__count__": %d, "__code__": %s})`,
		pyString(source), t.count, pyString(t.code))
}

// pyString returns a Python string literal.
func pyString(s string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(s, "\uFFFD")) }

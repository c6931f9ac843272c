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

// tick is what the child does silently once it is idle: it takes note of a cell that it
// did not see, or runs what that cell left for it.
type tick struct {
	count  int
	code   string // the cell, when it counts
	after  string // Python
	failed int    // how often the child did not run it

	seq     uint64 // its place among what was sent to the child
	checked bool   // it was on its way at the last look
}

// hiddenPrefix marks ids of requests that no client sent: their answers go nowhere.
const hiddenPrefix = "tfcluster-hidden-"

func hidden(parentID string) bool { return strings.HasPrefix(parentID, hiddenPrefix) }

// nextCount is the count of a matched cell that begins now: behind what the child was
// given and what it has yet to be told. Caller holds mu.
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

// reserve gives a matched cell its count. The child learns of it before any later cell,
// so that no two cells share a number. Caller holds mu.
func (k *Kernel) reserve(c *Cell) {
	c.count = k.nextCount()
	if c.exec.Stores() {
		k.ticks = append(k.ticks, tick{count: c.count, code: c.Code})
		k.flushTicks()
	}
}

// flushTicks lets the child catch up, when no cell runs there: one that failed would
// abort whatever is queued behind it. Caller holds mu.
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

// skipTicks makes a child to come begin behind what its predecessor was not told; the
// values it would have kept went with that one. Caller holds mu.
func (k *Kernel) skipTicks() {
	for _, t := range k.ticks {
		k.count = max(k.count, t.count)
	}
	k.ticks = nil
}

// hide has the child run a tick without a trace. Caller holds mu.
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

// tickRetries is how often a tick is given again; the pause comes before all but the first.
const (
	tickRetries = 5
	tickPause   = 50 * time.Millisecond
)

// ticked takes the child's answer to a hidden request. One that it aborted, because a
// failing cell's order to abort overtook us, is given again, and so is one that an interrupt
// hit.
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
		if !k.dying && k.child != nil {
			k.hide(t)
		}
	})
}

// hideLost gives the ticks again that were sent before a marker which the child has answered, and
// have no answer. Caller holds mu.
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

// tickSource counts the cell as IPython would have: In, the history, the counter. Lists
// are filled up where cells before were aborted or ran in a child that died.
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

// python is the tick as one statement, which leaves no name behind.
func (t tick) python() string {
	source := t.after
	if t.after == "" {
		source = tickSource
	}
	return fmt.Sprintf(`exec(%s, {"ip": __import__("IPython").get_ipython(), "__count__": %d, "__code__": %s})`,
		pyString(source), t.count, pyString(t.code))
}

// pyString is a Python string literal.
func pyString(s string) string { return strconv.QuoteToASCII(strings.ToValidUTF8(s, "\uFFFD")) }

func bracket(n int) string { return "[" + strconv.Itoa(n) + "]" }

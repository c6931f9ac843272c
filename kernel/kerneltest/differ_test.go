package kerneltest_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// plainToy defines the toy Interceptor's magic in ipykernel.
const plainToy = `
import time
from IPython.core.magic import register_line_magic
class ToyError(Exception): pass
class ToyValue:
    def __init__(self, text): self.text = text
    def __repr__(self): return self.text
@register_line_magic
def toy(line):
    words = line.split()
    if words[0] == "lines":
        for i in range(int(words[1])):
            print("toy", i, flush=True)
            time.sleep(int(words[2]) / 1000)
    elif words[0] == "value":
        return ToyValue(words[1])
    elif words[0] == "fail":
        raise ToyError("it failed")
del toy`

// pair is this kernel and a plain ipykernel.
type pair struct {
	t           testing.TB
	ours, plain *player
	plays       int
	retried     int // sequences that differed once, and not when repeated
	loose       int
	ended       int // number of times ipykernel ended
	damaged     int // differences that did not occur between new kernels
	lost        int // replies that ipykernel lost in loose sequences
}

func newPair(t testing.TB) *pair {
	p := &pair{t: t}
	var work sync.WaitGroup
	ours := kerneltest.Start(t, &kerneltest.Toy{}, "--log-level=50")
	work.Go(func() { ours.Ready().Run("''") })
	p.startPlain()
	work.Wait()
	ours.Drain()
	p.ours = newPlayer(t, "tfcluster", ours, "%toy lines 0 0", nil)
	return p
}

func (p *pair) startPlain() {
	f, dead := kerneltest.StartPlain(p.t)
	f.Ready().Run(plainToy)
	f.Drain()
	p.plain = newPlayer(p.t, "ipykernel", f, "", dead)
}

// play plays a sequence on both at the same time and returns the differences, or "".
func (p *pair) play(s sequence) string {
	p.plays++
	var work sync.WaitGroup
	var ours, plain error
	work.Go(func() { plain = p.plain.play(s, p.plays) })
	ours = p.ours.play(s, p.plays)
	work.Wait()
	if ours != nil {
		return ours.Error()
	}
	if plain != nil { // an interrupt at the wrong moment ends ipykernel, immediately or later
		p.ended++
		p.t.Logf("seed %d: %v", s.seed, plain)
		if p.ended > p.plays/20+3 {
			p.t.Fatalf("ipykernel did not complete the sequence: %v\n%s", plain, s)
		}
		p.startPlain()
		if !s.loose {
			return p.play(s)
		}
	}
	if s.loose {
		p.lost += p.plain.unanswered()
		broken := p.ours.broken()
		for end := time.Now().Add(playLimit); broken != "" && time.Now().Before(end); broken = p.ours.broken() {
			p.ours.next(10 * time.Millisecond)
		}
		return broken
	}
	return p.compare()
}

// late is how long to wait for an answer that ipykernel gave: requests that the Interceptor
// answers first do not wait for cells, and may be answered after the last cell. A sequence with an answer that is later
// differs and is played again.
const late = 5 * time.Second

// compare returns the differences of the two.
func (p *pair) compare() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(p.plain.published)) {
		if !strings.HasPrefix(id, p.plain.prefix) {
			continue
		}
		plain, ours := p.plain.published[id], p.ours.of(id)
		for end := time.Now().Add(late); time.Now().Before(end) && ours.lacks(plain); {
			p.ours.next(10 * time.Millisecond)
		}
		was := fmt.Sprintf("    tfcluster: %s\n    ipykernel: %s\n", ours, plain)
		for _, rule := range permitted {
			rule.level(ours, plain)
		}
		if ours.String() != plain.String() {
			fmt.Fprintf(&b, "  m%s:\n%s", strings.TrimPrefix(id, p.plain.prefix), was)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(p.ours.published)) {
		if strings.HasPrefix(id, p.ours.prefix) && p.plain.published[id] == nil && !onlyHere(p.ours.published[id]) {
			fmt.Fprintf(&b, "  m%s: only tfcluster answered: %s\n", strings.TrimPrefix(id, p.ours.prefix), p.ours.published[id])
		}
	}
	return b.String()
}

// lacks reports whether an answer of the other is missing.
func (a *answers) lacks(other *answers) bool {
	return len(a.replies) < len(other.replies) || len(a.published) < len(other.published) ||
		len(a.stdout) < len(other.stdout) || len(a.stderr) < len(other.stderr) ||
		len(slices.Compact(slices.Clone(a.status))) < len(slices.Compact(slices.Clone(other.status)))
}

// broken returns the violated guarantees that hold at any moment of an interrupt: each cell is
// answered once, and each busy is followed by an idle.
func (p *player) broken() string {
	var b strings.Builder
	for id, n := range p.executes {
		if a := p.of(id); a.count("execute_reply") != n {
			fmt.Fprintf(&b, "  %s: %d cells, answered with %s\n", id, n, a)
		}
	}
	for id, a := range p.published {
		if !strings.HasPrefix(id, p.prefix) {
			continue
		}
		open := 0
		for _, s := range slices.Compact(slices.Clone(a.status)) {
			open++
			if s == "idle" {
				open -= 2
			}
			if open < 0 || open > 1 {
				break
			}
		}
		if open != 0 {
			fmt.Fprintf(&b, "  %s: busy and idle do not match: %s\n", id, a)
		}
	}
	return b.String()
}

// unanswered returns the number of cells without a reply.
func (p *player) unanswered() int {
	sum := 0
	for id, n := range p.executes {
		sum += max(0, n-p.of(id).count("execute_reply"))
	}
	return sum
}

// repeats is how often a difference must occur again: what a pause allows to happen first is
// random on both sides, and is not a difference of the kernels.
const repeats = 2

// differs plays a sequence until it is certain whether the two differ.
func (p *pair) differs(s sequence) string {
	diff := p.play(s)
	for range repeats {
		if diff == "" || s.loose {
			return diff
		}
		p.t.Logf("seed %d differed: \n%s", s.seed, diff)
		diff = p.play(s)
	}
	if diff == "" {
		return diff
	}
	fresh := newPair(p.t) // an earlier sequence, or an interrupt in it, may have changed the state of the ipykernel
	if diff = fresh.play(s); diff == "" {
		p.damaged++
	}
	p.ours, p.plain = fresh.ours, fresh.plain
	return diff
}

// shrink removes steps that a difference does not need, except those that later steps rely on.
func (p *pair) shrink(s sequence, diff string) (sequence, string) {
	for i := len(s.steps) - 1; i >= 0 && !s.loose; i-- {
		if slices.Contains([]act{interrupt, settle, awaitText}, s.steps[i].act) ||
			i+1 < len(s.steps) && s.steps[i+1].act == awaitText {
			continue
		}
		fewer := s
		fewer.steps = slices.Delete(slices.Clone(s.steps), i, i+1)
		if d := p.differs(fewer); d != "" {
			s, diff = fewer, d
		}
	}
	return s, diff
}

// Ensure generated sequences of messages and interrupts have the same results here and on a
// plain ipykernel. TFCLUSTER_TEST_SEQUENCES is their number; TFCLUSTER_TEST_SEED is the seed of
// the first one.
func TestSequences(t *testing.T) {
	t.Parallel()
	run := shortRun
	if testing.Short() {
		run /= 4
	}
	count, first := number(t, "TFCLUSTER_TEST_SEQUENCES", run), number(t, "TFCLUSTER_TEST_SEED", 1)
	workers := 1
	if count > shortRun {
		workers = longWorkers
	}
	var next atomic.Int64
	for w := range workers {
		t.Run(fmt.Sprint("pair ", w), func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			began, n := time.Now(), 0
			for i := next.Add(1); i <= int64(count); i = next.Add(1) {
				p.check(newSequence(uint64(int64(first) + i - 1))) //nolint:gosec // not negative
				if n++; n%250 == 0 {
					t.Logf("%d sequences in %s", n, time.Since(began).Round(time.Second))
				}
			}
			t.Logf("%d sequences in %s: %d with interrupts at random moments, in which ipykernel lost %d replies; "+
				"ipykernel ended %d times; %d differences did not occur between new kernels; %d sequences differed once and not "+
				"when repeated",
				n, time.Since(began).Round(time.Second), p.loose, p.lost, p.ended, p.damaged, p.retried)
		})
	}
}

const (
	shortRun    = 200 // sequences
	longWorkers = 2   // pairs of kernels
)

// check plays a sequence and reports the differences.
func (p *pair) check(s sequence) {
	before := p.plays
	diff := p.differs(s)
	if diff != "" {
		s, diff = p.shrink(s, diff)
		p.t.Errorf("%s%s", s, diff)
	} else if p.plays > before+1 {
		p.retried++
	}
	if s.loose {
		p.loose++
	}
}

func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		t.Fatalf("%s=%q is not a number", name, v)
	}
	return n
}

package feed

import (
	"errors"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// arrive sends a part of a batch to the holder.
func (b *bed) arrive(data string, offset, begin, end int64) {
	b.t.Helper()
	b.pieces <- &clusterpb.FeedPiece{Feed: 1, Data: []byte(data), Offset: offset, Begin: begin, End: end}
}

// TestMovedIn: of a batch that comes in pieces, the program gets the records of the range. A batch without an end is
// replaced by the next one.
func TestMovedIn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	c := b.program(false)
	b.arrive("lost: its sender was killed", 0, 0, 0)
	b.arrive("abc", 0, 0, 0)
	b.arrive("def", 3, 1, 5)
	if got, _ := c.batch(); got != "bcde" {
		t.Errorf("the program has %q", got)
	}
	b.held("the records", func(h *clusterpb.FeedHeld) bool { return h.GetMovedIn() == 4 && h.GetReceived() == 0 })
	b.pieces <- &clusterpb.FeedPiece{Feed: 7, Data: []byte("of another feed"), End: 4}
	b.arrive("xy", 0, 0, 2)
	if got, _ := c.batch(); got != "xy" {
		t.Errorf("the program has %q", got)
	}
}

// TestMovedInWhenFull: records of other holders get a slot although producers wait for slots.
func TestMovedInWhenFull(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	for range slots - 1 {
		p.put("x")
	}
	p.say(`{"op":"slot"}`)
	b.arrive("y", 0, 0, 1)
	b.held("the record", func(h *clusterpb.FeedHeld) bool { return h.GetMovedIn() == 1 })
	_, slot := c.batch()
	c.say(`{"op":"free","slot":%d,"rows":1}`, slot)
	p.quiet() // the slot is kept for the next records of other holders
	b.arrive("z", 0, 0, 1)
	b.held("the record", func(h *clusterpb.FeedHeld) bool { return h.GetMovedIn() == 2 })
}

// TestMovedOut: records move from the end of the queue, except records that are handed out or allowed.
func TestMovedOut(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(true)
	p.put("abc")
	p.put("def")
	b.held("the records", func(h *clusterpb.FeedHeld) bool { return h.GetReceived() == 6 })
	b.allow(2)
	b.move(5)
	if m := await(b, (*clusterpb.HolderMessage).GetMoved); m.GetRows() != 4 || m.GetTo() != "worker:1" {
		t.Errorf("moved: %v", m)
	}
	var sent []string
	for range 2 {
		piece := <-b.sent
		sent = append(sent, string(piece.GetData()[piece.GetBegin():piece.GetEnd()]))
	}
	if got := strings.Join(sent, " "); got != "def c" {
		t.Errorf("sent %q", got)
	}
	b.epochOver(0, 2)
	if got, _ := c.batch(); got != "ab" {
		t.Errorf("the program has %q", got)
	}
	c.say(`{"op":"next"}`)
	c.hear("epoch_over")
}

// TestMoveFails: another holder that cannot receive records does not end this holder.
func TestMoveFails(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	p.put("ab")
	b.held("the records", func(h *clusterpb.FeedHeld) bool { return h.GetReceived() == 2 })
	b.refuse.Store(true)
	b.move(2)
	b.until("the loss", func() bool { return len(b.in.feed.queue) == 0 })
	for range slots - 1 { // also the slot of the records that were lost
		p.put("c")
	}
	if got, _ := c.batch(); got != "c" {
		t.Errorf("the program has %q", got)
	}
	// There is no such feed.
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Move{Move: &clusterpb.FeedMove{Feed: 9, Rows: 2, To: "worker:1"}},
	})
	if got, _ := c.batch(); got != "c" {
		t.Errorf("the program has %q", got)
	}
}

// FuzzParseMessage: no line makes parseMessage panic, or return a message without an op.
func FuzzParseMessage(f *testing.F) {
	for _, line := range []string{
		`{"op":"put","slot":1,"bytes":2,"rows":3}`, `{"op":"produce","feed":-1,"key":"k","plan":{"a":[1]}}`, `{"op":""}`,
		`{}`, `[]`, "", "\n", `{"op":"free","rows":1e99}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		if m, err := parseMessage(line); err == nil && m.Op == "" {
			t.Errorf("%q has no op", line)
		}
	})
}

// TestLongLines: lines are read whole, up to the limit.
func TestLongLines(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", maxLine-100)
	r := newLineReader(strings.NewReader(`{"op":"stop","reason":"` + text + `"}` + "\n" + `{"op":"` +
		strings.Repeat("y", 2*maxLine)))
	if m, err := r.read(); err != nil || m.Reason != text {
		t.Errorf("a line of %d bytes: %v", len(text), err)
	}
	if _, err := r.read(); !errors.Is(err, errNoMessage) {
		t.Errorf("a line without end: %v", err)
	}
}

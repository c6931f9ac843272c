package feed

import (
	"os"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestOneBatch: a batch goes from a producer to the program, and its slot back.
func TestOneBatch(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(3), b.program(false)
	p.put("abc")
	if got, slot := c.batch(); got != "abc" {
		t.Errorf("the program has %q", got)
	} else {
		c.say(`{"op":"used","feed":1,"epoch":0,"rows":3}`)
		c.say(`{"op":"free","slot":%d,"rows":3}`, slot)
	}
	b.held("the use", func(h *clusterpb.FeedHeld) bool { return h.GetReceived() == 3 && h.GetUsed() == 3 })
	p.say(`{"op":"done"}`)
	if m := p.hear("done"); m.Rows != 6 {
		t.Errorf("the producer was told %+v", m)
	}
	if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetRows() != 6 || !e.GetComplete() {
		t.Errorf("the driver received %v", e)
	}
	p.over()
}

// TestBackPressure: a producer gets slots when the program frees them. One slot is kept for records of other holders.
func TestBackPressure(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	for range slots - 1 {
		p.put("ab")
	}
	p.say(`{"op":"slot"}`)
	p.quiet()
	b.held("that it is full", (*clusterpb.FeedHeld).GetFull)
	_, slot := c.batch()
	c.say(`{"op":"free","slot":%d,"rows":2}`, slot)
	if m := p.hear("slot"); m.Slot != slot {
		t.Errorf("got slot %d, %d was given back", m.Slot, slot)
	}
	b.held("that it is not full", func(h *clusterpb.FeedHeld) bool { return !h.GetFull() })
}

// TestRefused: a peer without the key, with another cluster's key, or that comes too late, gets no memory.
func TestRefused(t *testing.T) {
	t.Parallel()
	b, other := newBed(t), newBed(t)
	refused := func(line, op, reason string) {
		t.Helper()
		p := b.dial()
		p.say("%s", line)
		if m := p.hear(op); !strings.Contains(m.Reason, reason) || len(p.files) != 0 {
			t.Errorf("%s: %+v with %d descriptors", line, m, len(p.files))
		}
		p.over()
	}
	const good = `{"op":"produce","feed":1,"key":"secret"}`
	refused(good, "stop", "takes no records") // no feed is on
	early := b.dial()
	early.say(good)
	early.quiet()
	b.begin(1)
	await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
	other.beginWith(1, "another")
	for _, line := range []string{
		`{"op":"produce","feed":1,"key":"another"}`,
		`{"op":"produce","feed":1}`,
		`{"op":"produce","feed":2,"key":"secret"}`,
		`{"op":"produce","feed":1,"key":"` + b.key + `"}`,
	} {
		refused(line, "stop", "takes no records")
	}
	for _, line := range []string{
		`{"op":"consume","key":"` + other.key + `"}`, `{"op":"consume","key":"secret"}`, `{"op":"consume"}`, `{"op":"slot"}`,
	} {
		refused(line, "stop", "another task")
	}
	for _, line := range []string{`{"op":""}`, `[]`, `x`} {
		p := b.dial()
		p.say("%s", line)
		p.over()
	}
	b.program(false)
	refused(`{"op":"consume","key":"`+b.key+`"}`, "over", "another connection")
	b.over("", false)
	refused(good, "stop", "")
	path, _ := b.in.Socket()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
}

// TestLeaseRefused: a producer with a refused lease receives the reason and no memory, and is removed.
func TestLeaseRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p := b.dial()
	p.say(`{"op":"produce","feed":1,"key":"secret","epoch":7}`)
	w := await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
	b.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{
		Feed: 1, Producer: w.GetProducer(), Refused: "there is no epoch 7",
	}}})
	if m := p.hear("stop"); m.Reason != "there is no epoch 7" || len(p.files) != 0 {
		t.Errorf("%+v with %d descriptors", m, len(p.files))
	}
	p.over()
	p.conn.Close()
	if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetRows() != 0 || e.GetComplete() {
		t.Errorf("the driver received %v", e)
	}
}

// TestProducerBreaksProtocol: a producer that breaks the protocol is stopped, and the batches that it put before
// count.
func TestProducerBreaksProtocol(t *testing.T) {
	t.Parallel()
	for _, line := range []string{
		`{"op":"put","slot":0,"bytes":1,"rows":1}`, `{"op":"put","slot":-1,"bytes":1,"rows":1}`,
		`{"op":"put","slot":99,"bytes":1,"rows":1}`, `{"op":"put","slot":7,"bytes":5000,"rows":1}`,
		`{"op":"put","slot":7,"bytes":0,"rows":1}`, `{"op":"put","slot":7,"bytes":1,"rows":0}`, `{"op":"consume"}`,
		`{"op":"free","slot":0,"rows":1}`, `x`,
	} {
		b := newBed(t)
		b.begin(1)
		p := b.producer(0)
		p.put("ab")
		p.say(`{"op":"slot"}`)
		slot := p.hear("slot").Slot
		p.say("%s", strings.Replace(line, `"slot":7`, `"slot":`+string(rune('0'+slot)), 1))
		if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetRows() != 2 || e.GetComplete() {
			t.Errorf("%s: the driver received %v", line, e)
		}
		p.over()
	}
}

// TestProducerKilled: the slots of a killed producer go to others, and the driver receives the number of its records.
func TestProducerKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p := b.producer(0)
	p.put("ab")
	for range slots - 2 {
		p.say(`{"op":"slot"}`)
		p.hear("slot")
	}
	q := b.producer(0)
	q.say(`{"op":"slot"}`)
	q.quiet()
	p.close()
	q.hear("slot")
	if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetRows() != 2 || e.GetComplete() {
		t.Errorf("the driver received %v", e)
	}
}

// TestDigest: an attempt receives the digest of the records that were delivered before it. The driver receives the
// digest of all records after it.
func TestDigest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		put, want string
	}{{"", "x"}, {`{"op":"put","slot":%d,"bytes":1,"rows":1,"digest":"y"}`, "y"}} {
		b := newBed(t)
		b.begin(1)
		p := b.dial()
		p.say(`{"op":"produce","feed":1,"key":"secret","digest":"d"}`)
		w := await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
		b.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{
			Feed: 1, Producer: w.GetProducer(), Skip: 2, Digest: "x",
		}}})
		if m := p.hear("lease"); m.Digest != "x" {
			t.Errorf("%+v", m)
		}
		if c.put != "" {
			p.say(`{"op":"slot"}`)
			p.say(c.put, p.hear("slot").Slot)
		}
		p.close()
		if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetDigest() != c.want {
			t.Errorf("the driver received %v", e)
		}
	}
}

// TestProgramKilled: the records that a killed program had count as used; the others can be moved.
func TestProgramKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	for range slots - 1 {
		p.put("ab")
	}
	c.batch()
	p.say(`{"op":"slot"}`)
	p.quiet()
	c.close()
	p.hear("slot")
	b.held("the use", func(h *clusterpb.FeedHeld) bool { return h.GetUsed() == 2 })
	if l := await(b, (*clusterpb.HolderMessage).GetLeft); l.GetFeed() != 1 {
		t.Errorf("the driver received %v", l)
	}
	b.move(100)
	if m := await(b, (*clusterpb.HolderMessage).GetMoved); m.GetRows() != 12 {
		t.Errorf("%d records were moved", m.GetRows())
	}
	b.over("", true)
	b.begin(2) // no program will read it
	if l := await(b, (*clusterpb.HolderMessage).GetLeft); l.GetFeed() != 2 {
		t.Errorf("the driver received %v", l)
	}
}

// TestProgramEnded: a program that exits without a connection to the holder has left.
func TestProgramEnded(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	b.in.ProgramEnded()
	if l := await(b, (*clusterpb.HolderMessage).GetLeft); l.GetFeed() != 1 {
		t.Errorf("the driver received %v", l)
	}
}

// TestProgramLeaves: when a program leaves, its thread that waits for records continues, and records of an epoch that
// is over free their slots.
func TestProgramLeaves(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	c.say(`{"op":"next"}`)
	c.quiet()
	c.say(`{"op":"leave","feed":1}`)
	c.hear("over")
	await(b, (*clusterpb.HolderMessage).GetLeft)
	for range slots - 1 {
		p.put("ab")
	}
	p.say(`{"op":"slot"}`)
	p.quiet()
	b.epochOver(0, 14)
	p.hear("slot")
}

// TestUnread: the records that a leaving program was handed and has not read, in its memory or in the socket.
func TestUnread(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	p.put("abcde")
	p.put("fg")
	c.batch()
	c.say(`{"op":"used","feed":1,"epoch":0,"rows":5}`)
	c.batch()
	c.say(`{"op":"leave","feed":1,"epoch":0,"rows":4}`)
	b.held("what was not read", func(h *clusterpb.FeedHeld) bool { return h.GetUsed() == 7 && h.GetUnread() == 6 })
}

// TestFreeByParts: a slot is free when its last record is.
func TestFreeByParts(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(true)
	p.put("abcde")
	for range slots - 2 {
		p.put("x")
	}
	b.allow(2)
	got, slot := c.batch()
	b.allow(5)
	if more, same := c.batch(); got+" "+more != "ab cde" || same != slot {
		t.Errorf("%q of slot %d, then %q of slot %d", got, slot, more, same)
	}
	c.say(`{"op":"free","slot":%d,"rows":3}`, slot)
	p.say(`{"op":"slot"}`)
	p.quiet()
	c.say(`{"op":"free","slot":%d,"rows":2}`, slot)
	if m := p.hear("slot"); m.Slot != slot {
		t.Errorf("got slot %d", m.Slot)
	}
	c.say(`{"op":"free","slot":%d,"rows":1}`, slot) // it has none of the slot's records any more
	c.over()
}

// TestEvenReading: no record is handed out before it is allowed; records that are left out of an epoch are dropped.
func TestEvenReading(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(true)
	p.put("abcde")
	c.say(`{"op":"next"}`)
	c.quiet()
	b.held("that the program waits", func(h *clusterpb.FeedHeld) bool { return h.GetStarving() && h.GetReceived() == 5 })
	b.allow(3)
	if got, _ := c.handed(); got != "abc" {
		t.Errorf("the program has %q", got)
	}
	b.epochOver(0, 4)
	if got, _ := c.batch(); got != "d" {
		t.Errorf("the program has %q", got)
	}
	c.say(`{"op":"next"}`)
	if m := c.hear("epoch_over"); m.Epoch != 0 || m.Rows != 4 {
		t.Errorf("%+v", m)
	}
	c.quiet()
	b.over("", false)
	c.hear("over")
	if m := p.hear("stop"); m.Reason != "" {
		t.Errorf("%+v", m)
	}
}

// TestMore: after a feed that another one follows, producers are stopped and the program waits.
func TestMore(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	p.put("ab")
	b.over("ValueError: x", true)
	if m := p.hear("stop"); m.Reason != "ValueError: x" {
		t.Errorf("%+v", m)
	}
	p.over()
	late := b.dial()
	late.say(`{"op":"produce","feed":1,"key":"secret"}`)
	late.hear("stop")
	if got, _ := c.batch(); got != "ab" {
		t.Errorf("the program has %q", got)
	}
	c.say(`{"op":"next"}`)
	c.quiet()
	b.begin(2)
	if m := c.hear("feed"); m.Feed != 2 {
		t.Errorf("%+v", m)
	}
	c.say(`{"op":"read","feed":2}`)
	b.order(
		&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Over{Over: &clusterpb.FeedOver{Feed: 2, Reason: "broken"}}})
	c.say(`{"op":"next"}`)
	if m := c.hear("over"); m.Reason != "broken" {
		t.Errorf("%+v", m)
	}
}

// TestDriverLost: when the driver is lost, producers and the program receive the reason, also a program that connects
// after that.
func TestDriverLost(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	p, c := b.producer(0), b.program(false)
	close(b.end)
	for peer, op := range map[*peerConn]string{p: "stop", c: "over"} {
		if m := peer.hear(op); !strings.Contains(m.Reason, "worker:0 has lost the connection to the cluster's driver") {
			t.Errorf("%+v", m)
		}
		peer.over()
	}
	late := b.dial()
	late.say(`{"op":"consume","key":"%s"}`, b.key)
	if m := late.hear("over"); !strings.Contains(m.Reason, "worker:0 has lost the connection to the cluster's driver") {
		t.Errorf("%+v", m)
	}
}

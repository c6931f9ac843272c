package feed

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Uneven is what becomes of the records at the end of an epoch that the holders cannot share equally.
type Uneven int

// Values of Uneven.
const (
	Drop   Uneven = iota // they are left out
	Pad                  // the other holders repeat one
	Spread               // some holders get one more than others: evaluation leaves nothing out
	// Records stay where they were delivered: inference returns results to the producer that waits for them.
	Stay
)

// Config holds the settings of a feed.
type Config struct {
	ID     int64 // the feed's number in messages
	Epochs int32 // how often the source is read, at least once
	Uneven Uneven
	More   bool     // another feed follows: programs wait for it after the last epoch
	Tasks  []string // the holders: tasks whose programs read the feed
}

// Feed is the state of one feed. It is not safe for several goroutines.
type Feed struct {
	Config
	order   []string // of the holders, so that decisions are deterministic
	holders map[string]*holder
	leases  map[leaseKey]*lease
	epochs  []*epoch // by number
	mode    readingMode
	over    bool
	fault   string
	stopped string // the reason for which the source is stopped; "": it is not
}

// readingMode is the way in which programs read. It is unknown before the first read.
type readingMode int

const (
	unknown readingMode = iota
	even
	uneven
)

// holder is a place for records: the shared memory of a task.
type holder struct {
	id     string
	reads  bool // its program may read; false: it has left
	mode   readingMode
	moving bool   // a Move has not been answered
	to     string // of the last Move
	gone   bool   // it is lost
	empty  bool   // it could move nothing, and has reported nothing since
}

// epoch is one pass over the source.
type epoch struct {
	number   int32
	held     map[string]*clusterpb.FeedHeld
	incoming map[string]int64 // records sent to a holder, in all
	allowed  map[string]int64
	fed      bool
	last     bool
	rows     int64            // of the source, once fed
	target   map[string]int64 // records for each program, once they are known
	over     bool
	given    map[string]int64 // records for each program, once the epoch is over
	leftOut  int64            // records that no program gets, once the epoch is over
}

// New begins a feed.
func New(c Config) *Feed {
	f := &Feed{
		Config: c, order: slices.Sorted(slices.Values(c.Tasks)), holders: map[string]*holder{}, leases: map[leaseKey]*lease{},
	}
	for _, task := range c.Tasks {
		f.holders[task] = &holder{id: task, reads: true}
	}
	return f
}

// Step applies the message of a holder and returns the orders that follow. It ignores the messages of another feed. It
// refuses a producer of an epoch that the feed does not have.
func (f *Feed) Step(holder string, m *clusterpb.HolderMessage) []Order {
	switch id, epoch := subject(m); {
	case id != f.ID:
		return nil
	case f.has(epoch):
	case m.GetLeaseWanted() != nil:
		reason := fmt.Sprintf("the feed has %d epochs: there is no epoch %d, counted from 0", max(f.Epochs, 1), epoch)
		return []Order{
			orderLease(holder, &clusterpb.FeedLease{Feed: f.ID, Producer: m.GetLeaseWanted().GetProducer(), Refused: reason}),
		}
	default:
		return nil
	}
	h := f.holders[holder]
	if held := m.GetHeld(); held != nil {
		f.epoch(held.GetEpoch()).held[holder] = held
	}
	if f.over { // programs read what they have; holders know that the feed is over, and refuse producers themselves
		h.reads = h.reads && m.GetLeft() == nil
		return nil
	}
	var orders []Order
	switch m := m.GetMessage().(type) {
	case *clusterpb.HolderMessage_Reading:
		orders = f.reading(h, m.Reading)
	case *clusterpb.HolderMessage_LeaseWanted:
		orders = f.leaseWanted(request{holder, m.LeaseWanted})
	case *clusterpb.HolderMessage_LeaseEnded:
		orders = f.leaseEnded(holder, m.LeaseEnded)
	case *clusterpb.HolderMessage_Held:
		h.empty = false
	case *clusterpb.HolderMessage_Moved:
		if f.holders[m.Moved.GetTo()] == nil {
			return nil
		}
		h.moving, h.empty = false, m.Moved.GetRows() == 0
		f.epoch(m.Moved.GetEpoch()).incoming[m.Moved.GetTo()] += m.Moved.GetRows()
	case *clusterpb.HolderMessage_Left:
		if f.Uneven == Stay {
			return f.Fail(holder + " reads no more: inference needs a result for every record")
		}
		h.reads, h.empty = false, false // what was reserved for its program can be moved now
	}
	return f.proceed(orders)
}

// subject returns the feed and the epoch of a message; epoch 0 where it names none.
func subject(m *clusterpb.HolderMessage) (feed int64, epoch int32) {
	switch m := m.GetMessage().(type) {
	case *clusterpb.HolderMessage_Reading:
		return m.Reading.GetFeed(), 0
	case *clusterpb.HolderMessage_LeaseWanted:
		return m.LeaseWanted.GetFeed(), m.LeaseWanted.GetEpoch()
	case *clusterpb.HolderMessage_LeaseEnded:
		return m.LeaseEnded.GetFeed(), 0
	case *clusterpb.HolderMessage_Held:
		return m.Held.GetFeed(), m.Held.GetEpoch()
	case *clusterpb.HolderMessage_Moved:
		return m.Moved.GetFeed(), m.Moved.GetEpoch()
	case *clusterpb.HolderMessage_Left:
		return m.Left.GetFeed(), 0
	}
	return 0, 0
}

// has reports whether the feed has an epoch.
func (f *Feed) has(epoch int32) bool { return epoch >= 0 && epoch < max(f.Epochs, 1) }

// Lost records that a holder's stream has ended: the holder's records are lost.
func (f *Feed) Lost(holder string) []Order {
	if f.Uneven == Stay && !f.over {
		return f.Fail(holder + " has ended: the results of its records are lost")
	}
	if reason := f.gone(f.holders[holder]); reason != "" && f.fault == "" {
		return f.fail(reason)
	}
	return f.proceed(nil)
}

// EpochFed records that the source has been read to its end for an epoch.
func (f *Feed) EpochFed(e *clusterpb.FeedEpochFed) []Order {
	if f.over || !f.has(e.GetEpoch()) {
		return nil
	}
	x := f.epoch(e.GetEpoch())
	x.fed, x.rows, x.last = true, e.GetRows(), e.GetLast()
	return f.proceed(nil)
}

// SourceFailed ends the feed where its source has failed: programs wait for another feed.
func (f *Feed) SourceFailed(reason string) []Order {
	if f.over {
		return nil
	}
	f.fault = reason
	return f.end(reason, true)
}

// Fail ends the feed with a reason.
func (f *Feed) Fail(reason string) []Order {
	if f.over {
		return nil
	}
	return f.fail(reason)
}

func (f *Feed) fail(reason string) []Order {
	f.fault = reason
	f.stopSource(reason)
	return f.end(reason, false)
}

// Stopped reports whether the source is to stop: no program reads what it would bring.
func (f *Feed) Stopped() bool { return f.stopped != "" }

func (f *Feed) stopSource(reason string) { f.stopped = cmp.Or(f.stopped, reason) }

// proceed appends to the orders of a change those that follow from the new state.
func (f *Feed) proceed(orders []Order) []Order {
	if f.over {
		return orders
	}
	if len(f.readers()) == 0 {
		f.stopSource("no program reads any more")
		return append(orders, f.end("", false)...)
	}
	return append(orders, f.progress()...)
}

// end ends the feed at every holder.
func (f *Feed) end(reason string, more bool) []Order {
	f.over = true
	var orders []Order
	for _, id := range f.order {
		orders = append(orders, orderOver(id, &clusterpb.FeedOver{Feed: f.ID, Reason: reason, More: more}))
	}
	return orders
}

// reading records how a program reads. All programs of a feed read in the same way: a worker that waits for equal
// numbers would wait for ever for a worker that does not.
func (f *Feed) reading(h *holder, r *clusterpb.FeedReading) []Order {
	mode := uneven
	if r.GetEven() && f.Uneven != Stay { // in inference each program reads what its producers deliver
		mode = even
	}
	h.mode = mode
	f.mode = cmp.Or(f.mode, mode)
	if f.mode != mode {
		return f.fail(
			fmt.Sprintf("%s reads with as_dataset or fit, %s does not: all workers must read the feed in the same way",
				f.reader(even), f.reader(uneven)))
	}
	return nil
}

// reader returns the first holder that reads in this way.
func (f *Feed) reader(mode readingMode) string {
	for _, id := range f.order {
		if f.holders[id].mode == mode {
			return id
		}
	}
	return ""
}

// readers returns the holders whose programs read.
func (f *Feed) readers() []*holder {
	var all []*holder
	for _, id := range f.order {
		if h := f.holders[id]; h.reads {
			all = append(all, h)
		}
	}
	return all
}

// epoch returns an epoch. An epoch begins with its first event.
func (f *Feed) epoch(number int32) *epoch {
	for len(f.epochs) <= int(number) {
		f.epochs = append(f.epochs, &epoch{
			number: int32(len(f.epochs)), held: map[string]*clusterpb.FeedHeld{}, incoming: map[string]int64{},
			allowed: map[string]int64{},
		})
	}
	return f.epochs[number]
}

// net returns how many records of an epoch a holder has or has handed out.
func (x *epoch) net(id string) int64 {
	h := x.held[id]
	return h.GetReceived() + h.GetMovedIn() - h.GetMovedOut()
}

// gone removes a holder. It returns the reason for which the feed fails if records are lost for programs that continue:
// records that the holder has not handed out, records on their way to it or from it, and the unknown number that its
// producers have delivered. It returns "" if no record is lost.
func (f *Feed) gone(h *holder) (reason string) {
	lost := f.unread(h)
	uncertain := f.forgetLeases(h.id) || h.moving
	for _, id := range f.order {
		other := f.holders[id]
		uncertain = uncertain || other.moving && other.to == h.id
	}
	for _, x := range f.epochs {
		if !x.over {
			lost += x.incoming[h.id] - x.movedIn(h.id)
		}
	}
	h.reads, h.gone, h.moving = false, true, false
	switch {
	case len(f.readers()) == 0:
		return ""
	case uncertain && !f.over:
		return h.id + " has ended while records were delivered to it"
	case lost > 0:
		return fmt.Sprintf("%s has ended with %d records that no program has read", h.id, lost)
	}
	return ""
}

// unread returns how many records a holder has that its program, or another one, is to read.
func (f *Feed) unread(h *holder) int64 {
	var n int64
	for _, x := range f.epochs {
		switch {
		case !x.over:
			n += x.net(h.id) - x.used(h.id)
		case h.reads:
			n += x.given[h.id] - x.used(h.id)
		}
	}
	return n
}

// movedIn returns how many records of an epoch have come to a holder from others.
func (x *epoch) movedIn(id string) int64 { return x.held[id].GetMovedIn() }

// settled reports whether all records that were sent to holders have arrived.
func (x *epoch) settled(gone func(id string) bool) bool {
	for id, sent := range x.incoming {
		if !gone(id) && x.movedIn(id) < sent {
			return false
		}
	}
	return true
}

func (x *epoch) full(id string) bool     { return x.held[id].GetFull() }
func (x *epoch) starving(id string) bool { h := x.held[id]; return h == nil || h.GetStarving() }

// used returns how many records of an epoch a holder has handed out.
func (x *epoch) used(id string) int64 { return x.held[id].GetUsed() }

// read returns how many records of an epoch a program has read.
func (x *epoch) read(id string) int64 { return x.held[id].GetUsed() - x.held[id].GetUnread() }

// Progress is the progress of a feed.
type Progress struct {
	Epoch     int32 // the one that programs read; counted from 0
	Delivered int64 // records that have reached holders, in all epochs
	Used      int64 // records that programs have read, in all epochs
	LeftOut   int64 // records of epochs that are over that no program got
	Remaining int64 // records that programs read yet, of those that have been delivered
	Rows      int64 // of an epoch, once one has been read to its end; 0: not known
	Over      bool
	Fault     string
	Waiting   bool // every program waits for the source; otherwise, if Full, the source waits for programs
	Full      bool
}

// Progress returns the progress of the feed.
func (f *Feed) Progress() Progress {
	p := Progress{Over: f.over, Fault: f.fault}
	for _, h := range f.readers() {
		p.Remaining += f.unread(h)
	}
	for _, x := range f.epochs {
		var used, net int64
		for id := range f.holders {
			used, net = used+x.read(id), net+x.net(id)
		}
		p.Used, p.Delivered = p.Used+used, p.Delivered+net
		if used > 0 {
			p.Epoch = x.number
		}
		if x.fed {
			p.Rows = x.rows
		}
		p.LeftOut += x.leftOut
		if readers := f.readers(); !x.over && len(readers) > 0 {
			p.Waiting, p.Full = true, false
			for _, h := range readers {
				p.Waiting, p.Full = p.Waiting && x.starving(h.id), p.Full || x.full(h.id)
			}
		}
	}
	return p
}

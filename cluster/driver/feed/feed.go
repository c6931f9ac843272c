package feed

import (
	"fmt"
	"slices"
)

// Uneven says what becomes of the records at the end of an epoch that do not make equally many for all holders.
type Uneven int

// The values of Uneven.
const (
	Drop   Uneven = iota // they are left out
	Pad                  // the other holders repeat one
	Spread               // some holders get one more than others: evaluation leaves nothing out
	Stay                 // records stay where they were delivered: inference returns results to the producer that waits for them
)

// Feed is the state of one feed. It is not safe for several goroutines.
type Feed struct {
	uneven  Uneven
	order   []string // of the holders, for determined decisions
	holders map[string]*holder
	leases  map[leaseKey]*lease
	epochs  []*epoch // by number, from first on
	mode    readingMode
	more    bool // another feed follows
	over    bool
	stopped bool // StopSource was returned
	fault   string
}

// readingMode is how programs read: not known before the first read.
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
	gone   bool   // it attends no more
	empty  bool   // it could move nothing, and has reported nothing since
}

// epoch is one pass over the source.
type epoch struct {
	number   int
	held     map[string]*Held
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

// New returns a feed with holders, each the task of a program that reads it. If more, another feed follows: the
// programs wait for it behind the last epoch.
func New(uneven Uneven, more bool, tasks []string) *Feed {
	f := &Feed{uneven: uneven, more: more, holders: map[string]*holder{}, leases: map[leaseKey]*lease{}}
	for _, id := range tasks {
		f.holders[id] = &holder{id: id, reads: true}
		f.order = append(f.order, id)
	}
	slices.Sort(f.order)
	return f
}

// Step applies an event and returns what is to be done.
func (f *Feed) Step(e Event) []Action {
	if f.over {
		return f.late(e)
	}
	var actions []Action
	switch e := e.(type) {
	case Reading:
		actions = f.reading(e)
	case LeaseWanted:
		actions = f.leaseWanted(e)
	case LeaseEnded:
		actions = f.leaseEnded(e)
	case Held:
		f.epoch(e.Epoch).held[e.Holder] = &e
		f.holders[e.Holder].empty = false
	case Moved:
		f.holders[e.Holder].moving, f.holders[e.Holder].empty = false, e.Rows == 0
		f.epoch(e.Epoch).incoming[e.To] += e.Rows
	case HolderLeft:
		if f.uneven == Stay {
			return f.fail(e.Holder + " reads no more: inference needs a result for every record")
		}
		h := f.holders[e.Holder]
		h.reads, h.empty = false, false // what was reserved for its program can be moved now
	case HolderGone:
		if f.uneven == Stay {
			return f.fail(e.Holder + " has ended: the results of its records are lost")
		}
		if reason := f.gone(f.holders[e.Holder]); reason != "" {
			return f.fail(reason)
		}
	case EpochFed:
		x := f.epoch(e.Epoch)
		x.fed, x.rows, x.last = true, e.Rows, e.Last
	case SourceFailed:
		f.fault = e.Reason
		return f.end(Over{Reason: e.Reason, More: true})
	case Failed:
		return f.fail(e.Reason)
	}
	if f.over {
		return actions
	}
	if !f.anyReads() {
		return append(append(actions, f.end(Over{})...), f.stopSource("no program reads any more")...)
	}
	return append(actions, f.progress()...)
}

// late takes what arrives after the end, while programs read what they have. Holders have been informed that the feed
// is over, so they refuse producers themselves.
func (f *Feed) late(e Event) []Action {
	switch e := e.(type) {
	case Held:
		f.epoch(e.Epoch).held[e.Holder] = &e
	case HolderLeft:
		f.holders[e.Holder].reads = false
	case HolderGone:
		if reason := f.gone(f.holders[e.Holder]); reason != "" && f.fault == "" {
			return f.fail(reason)
		}
	}
	return nil
}

// end ends the feed and sends over to every holder.
func (f *Feed) end(over Over) []Action {
	f.over = true
	var actions []Action
	for _, id := range f.order {
		over.Holder = id
		actions = append(actions, over)
	}
	return actions
}

// fail ends the feed with a reason.
func (f *Feed) fail(reason string) []Action {
	f.fault = reason
	return append(f.end(Over{Reason: reason}), f.stopSource(reason)...)
}

// stopSource has the source stopped, once.
func (f *Feed) stopSource(reason string) []Action {
	if f.stopped {
		return nil
	}
	f.stopped = true
	return []Action{StopSource{Reason: reason}}
}

// reading notes how a program reads. All programs of a feed read in the same way: a worker that waits for
// equal numbers would wait for ever for one that does not.
func (f *Feed) reading(e Reading) []Action {
	mode := uneven
	if e.Even && f.uneven != Stay { // in inference each program reads what its producers deliver
		mode = even
	}
	h := f.holders[e.Holder]
	h.mode = mode
	if f.mode == unknown {
		f.mode = mode
	}
	if f.mode != mode {
		return f.fail(fmt.Sprintf("%s reads with as_dataset or fit, %s does not: all workers must read the feed in the same way",
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

func (f *Feed) anyReads() bool { return len(f.readers()) > 0 }

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

// epoch returns an epoch, which begins with the first thing that happens in it.
func (f *Feed) epoch(number int) *epoch {
	for len(f.epochs) <= number {
		f.epochs = append(f.epochs, &epoch{
			number: len(f.epochs), held: map[string]*Held{}, incoming: map[string]int64{}, allowed: map[string]int64{},
		})
	}
	return f.epochs[number]
}

// net returns how many records of an epoch a holder has or has handed out.
func (x *epoch) net(id string) int64 {
	h := x.held[id]
	if h == nil {
		return 0
	}
	return h.Received + h.MovedIn - h.MovedOut
}

// gone takes a holder out. It returns the reason for which the feed fails, if programs that read go on and records
// are lost for them: what the holder has not handed out, what is on its way to it or from it, and the unknown number
// that its producers have delivered. An empty reason means that nothing is lost.
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
	case !f.anyReads():
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
func (x *epoch) movedIn(id string) int64 {
	if h := x.held[id]; h != nil {
		return h.MovedIn
	}
	return 0
}

// settled is whether everything that was sent to holders has arrived.
func (x *epoch) settled(gone func(id string) bool) bool {
	for id, sent := range x.incoming {
		if !gone(id) && x.movedIn(id) < sent {
			return false
		}
	}
	return true
}

func (x *epoch) full(id string) bool     { h := x.held[id]; return h != nil && h.Full }
func (x *epoch) starving(id string) bool { h := x.held[id]; return h == nil || h.Starving }

// used returns how many records of an epoch a holder has handed out.
func (x *epoch) used(id string) int64 {
	if h := x.held[id]; h != nil {
		return h.Used
	}
	return 0
}

// read returns how many records of an epoch a program has read.
func (x *epoch) read(id string) int64 {
	if h := x.held[id]; h != nil {
		return h.Used - h.Unread
	}
	return 0
}

// Progress is how far a feed is.
type Progress struct {
	Epoch     int   // the one that programs read; counted from 0
	Delivered int64 // records that have reached holders, in all epochs
	Used      int64 // records that programs have read, in all epochs
	LeftOut   int64 // records of epochs that are over that no program got
	Remaining int64 // records that programs read yet, of those that have been delivered
	Rows      int64 // of an epoch, once one has been read to its end; 0: not known
	Over      bool
	Fault     string
	Waiting   bool // every program waits for the source; else, if Full, the source waits for programs
	Full      bool
}

// Progress returns how far the feed is.
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

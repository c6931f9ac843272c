package feed

import (
	"fmt"
	"slices"
)

// leaseKey identifies what one attempt at a time delivers.
type leaseKey struct {
	epoch     int
	partition int64
}

// lease is the right to deliver a partition.
type lease struct {
	active   *LeaseWanted // who has it; nil: nobody
	rows     int64        // delivered by attempts that have ended
	digest   string       // of these records in their order, as the last attempt said
	first    string       // digest of the first record
	begun    bool         // first is known
	complete bool
	waiting  []LeaseWanted // other attempts, oldest first
}

// leaseWanted grants a lease, or has the producer wait for the attempt that has it.
func (f *Feed) leaseWanted(e LeaseWanted) []Action {
	f.epoch(e.Epoch)
	key := leaseKey{e.Epoch, e.Partition}
	l := f.leases[key]
	if l == nil {
		l = &lease{}
		f.leases[key] = l
	}
	if l.active != nil {
		l.waiting = append(l.waiting, e)
		return nil
	}
	return f.grant(l, e)
}

func (f *Feed) grant(l *lease, e LeaseWanted) []Action {
	if f.uneven == Stay {
		// The results that an earlier attempt got are lost with it: this one delivers the whole partition again, and the
		// programs compute it a second time.
		l.active = &e
		return []Action{Lease{Holder: e.Holder, Producer: e.Producer}}
	}
	if l.complete {
		return []Action{Lease{Holder: e.Holder, Producer: e.Producer, Skip: l.rows, Complete: true}}
	}
	if l.begun && l.rows > 0 && l.first != e.Digest {
		return f.fail(fmt.Sprintf("partition %d was computed again and begins with another record than before: "+
			"its first %d records were delivered already; make the DataFrame's order certain (sort or checkpoint it), then run the cell again", e.Partition, l.rows))
	}
	l.active, l.first, l.begun = &e, e.Digest, true
	return []Action{Lease{Holder: e.Holder, Producer: e.Producer, Skip: l.rows, Digest: l.digest}}
}

// leaseEnded takes a lease back and gives it to the attempt that waits.
func (f *Feed) leaseEnded(e LeaseEnded) []Action {
	for _, l := range f.leases {
		if l.active != nil && l.active.Holder == e.Holder && l.active.Producer == e.Producer {
			l.active, l.complete = nil, e.Complete
			if e.Rows > l.rows {
				l.rows, l.digest = e.Rows, e.Digest
			}
			return f.next(l)
		}
		for i, w := range l.waiting {
			if w.Holder == e.Holder && w.Producer == e.Producer {
				l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
				return nil
			}
		}
	}
	return nil
}

// next grants a free lease to those that wait.
func (f *Feed) next(l *lease) []Action {
	var actions []Action
	for len(l.waiting) > 0 && l.active == nil && !f.over {
		first := l.waiting[0]
		l.waiting = l.waiting[1:]
		actions = append(actions, f.grant(l, first)...)
	}
	return actions
}

// forgetLeases removes the producers of a holder that is gone. It returns true if one of them had a lease: how much
// it delivered is not known.
func (f *Feed) forgetLeases(holder string) (active bool) {
	for _, l := range f.leases {
		if l.active != nil && l.active.Holder == holder {
			l.active, active = nil, true
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(w LeaseWanted) bool { return w.Holder == holder })
	}
	return active
}

// delivered returns the records of complete partitions of an epoch, and whether no partition is incomplete.
func (f *Feed) delivered(number int) (rows int64, complete bool) {
	complete = true
	for key, l := range f.leases {
		if key.epoch == number {
			rows += l.rows
			complete = complete && l.complete
		}
	}
	return rows, complete
}

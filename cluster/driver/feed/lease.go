package feed

import (
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// leaseKey identifies a partition of an epoch: one attempt at a time delivers it.
type leaseKey struct {
	epoch     int32
	partition int64
}

// request is the message of a producer that wants a lease.
type request struct {
	holder string
	*clusterpb.LeaseWanted
}

// is reports whether the request came from a producer of a holder.
func (r *request) is(holder string, producer int64) bool {
	return r.holder == holder && r.GetProducer() == producer
}

// lease is the right to deliver a partition.
type lease struct {
	active   *request // the producer that has it; nil: none
	rows     int64    // delivered by attempts that have ended
	digest   string   // of these records in their order, as the last attempt computed it
	first    string   // digest of the first record
	begun    bool     // first is known
	complete bool
	waiting  []request // other attempts, oldest first
}

// leaseWanted grants a lease, or queues the producer if another attempt has the lease.
func (f *Feed) leaseWanted(r request) []Order {
	f.epoch(r.GetEpoch())
	key := leaseKey{r.GetEpoch(), r.GetPartition()}
	l := f.leases[key]
	if l == nil {
		l = &lease{}
		f.leases[key] = l
	}
	if l.active != nil {
		l.waiting = append(l.waiting, r)
		return nil
	}
	return f.grant(l, r)
}

func (f *Feed) grant(l *lease, r request) []Order {
	granted := &clusterpb.FeedLease{Feed: f.ID, Producer: r.GetProducer()}
	if f.Uneven == Stay {
		// The results that an earlier attempt got are lost with it: this one delivers the whole partition again, and the
		// programs compute it a second time.
		l.active = &r
		return []Order{orderLease(r.holder, granted)}
	}
	granted.Skip = l.rows
	if l.complete {
		granted.Complete = true
		return []Order{orderLease(r.holder, granted)}
	}
	if l.begun && l.rows > 0 && l.first != r.GetDigest() {
		return f.fail(fmt.Sprintf("partition %d was computed again and begins with another record than before: "+
			"its first %d records were delivered already; make the DataFrame's order certain (sort or checkpoint it), "+
			"then run the cell again", r.GetPartition(), l.rows))
	}
	l.active, l.first, l.begun = &r, r.GetDigest(), true
	granted.Digest = l.digest
	return []Order{orderLease(r.holder, granted)}
}

// leaseEnded takes a lease back and gives it to the attempt that waits.
func (f *Feed) leaseEnded(holder string, e *clusterpb.LeaseEnded) []Order {
	for _, l := range f.leases {
		if l.active != nil && l.active.is(holder, e.GetProducer()) {
			l.active, l.complete = nil, e.GetComplete()
			if e.GetRows() > l.rows {
				l.rows, l.digest = e.GetRows(), e.GetDigest()
			}
			return f.next(l)
		}
		i := slices.IndexFunc(l.waiting, func(w request) bool { return w.is(holder, e.GetProducer()) })
		if i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			return nil
		}
	}
	return nil
}

// next grants a free lease to the attempt that waits longest.
func (f *Feed) next(l *lease) []Order {
	var orders []Order
	for len(l.waiting) > 0 && l.active == nil && !f.over {
		first := l.waiting[0]
		l.waiting = l.waiting[1:]
		orders = append(orders, f.grant(l, first)...)
	}
	return orders
}

// forgetLeases removes the producers of a lost holder. It reports whether one of them had a lease: the number of
// records that it delivered is unknown.
func (f *Feed) forgetLeases(holder string) (active bool) {
	for _, l := range f.leases {
		if l.active != nil && l.active.holder == holder {
			l.active, active = nil, true
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(w request) bool { return w.holder == holder })
	}
	return active
}

// delivered returns the number of delivered records of an epoch, and reports whether every partition is complete.
func (f *Feed) delivered(number int32) (rows int64, complete bool) {
	complete = true
	for key, l := range f.leases {
		if key.epoch == number {
			rows += l.rows
			complete = complete && l.complete
		}
	}
	return rows, complete
}

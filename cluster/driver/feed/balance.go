package feed

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// progress returns the orders that the state of the open epochs requires.
func (f *Feed) progress() []Order {
	var orders []Order
	for _, x := range f.epochs {
		if x.over {
			continue
		}
		if f.Uneven != Stay {
			if rows, complete := f.delivered(x.number); x.fed && complete && rows != x.rows {
				return f.fail(fmt.Sprintf("the source has read %d records in epoch %d, and %d were delivered", x.rows,
					x.number+1, rows))
			}
			orders = append(orders, f.evacuate(x)...)
		}
		if f.mode == even {
			orders = append(orders, f.allow(x)...)
		}
		if f.closed(x) {
			orders = append(orders, f.closeEpoch(x)...)
		} else {
			orders = append(orders, f.rebalance(x)...)
		}
		if !x.over {
			break // records of the next epoch stay where they are until this one is over
		}
	}
	return orders
}

// evacuate moves records from holders that no program reads to the reader with the fewest records.
func (f *Feed) evacuate(x *epoch) []Order {
	var orders []Order
	for _, id := range f.order {
		h := f.holders[id]
		if h.reads || h.gone || h.moving || h.empty || x.net(id) <= x.used(id) {
			continue
		}
		if to := f.poorest(x); to != nil {
			orders = append(orders, f.move(h, x, x.net(id)-x.used(id), to))
		}
	}
	return orders
}

// poorest returns the reader with the fewest records to come; nil if no program reads.
func (f *Feed) poorest(x *epoch) *holder {
	readers := f.readers()
	if len(readers) == 0 {
		return nil
	}
	return slices.MinFunc(readers, func(a, b *holder) int { return cmp.Compare(f.reach(x, a.id), f.reach(x, b.id)) })
}

// reach returns the number of records by which readers are compared: all records of the epoch if reading is even,
// otherwise the records that wait for the program.
func (f *Feed) reach(x *epoch, id string) int64 {
	n := x.net(id) + x.incoming[id]
	n -= x.movedIn(id)
	if f.mode != even {
		n -= x.used(id)
	}
	return n
}

// richest returns the reader with the most records that has no free slot and sends none; nil if there is none.
func (f *Feed) richest(x *epoch) *holder {
	var most *holder
	for _, h := range f.readers() {
		if h.moving || h.empty || !x.full(h.id) {
			continue
		}
		if most == nil || f.reach(x, h.id) > f.reach(x, most.id) {
			most = h
		}
	}
	return most
}

// allow lets every reader hand out as many records as the poorest has.
func (f *Feed) allow(x *epoch) []Order {
	readers := f.readers()
	least := x.net(readers[0].id)
	for _, h := range readers {
		least = min(least, x.net(h.id))
	}
	var orders []Order
	for _, h := range readers {
		if x.allowed[h.id] < least {
			x.allowed[h.id] = least
			orders = append(orders, orderAllow(h.id, &clusterpb.FeedAllow{Feed: f.ID, Epoch: x.number, Rows: least}))
		}
	}
	return orders
}

// rebalance moves records from a reader that cannot take more to a reader that waits for some: the source may have no
// more for it.
func (f *Feed) rebalance(x *epoch) []Order {
	rich, poor := f.richest(x), f.poorest(x)
	if f.mode == unknown || f.Uneven == Stay || rich == nil || poor == nil || rich == poor || !x.starving(poor.id) {
		return nil
	}
	rows := (f.reach(x, rich.id) - f.reach(x, poor.id)) / 2
	if rows < 1 {
		return nil
	}
	return []Order{f.move(rich, x, rows, poor)}
}

// move orders a holder to send records to another one.
func (f *Feed) move(h *holder, x *epoch, rows int64, to *holder) Order {
	h.moving, h.to = true, to.id
	return orderMove(h.id, &clusterpb.FeedMove{Feed: f.ID, Epoch: x.number, Rows: rows, To: to.id})
}

// closed reports whether all records of an epoch have been delivered and have arrived.
func (f *Feed) closed(x *epoch) bool {
	if !x.fed {
		return false
	}
	if f.Uneven == Stay {
		return true // the source has a result for every record; records that earlier attempts delivered do not count
	}
	rows, complete := f.delivered(x.number)
	if !complete || !x.settled(func(id string) bool { return f.holders[id].gone }) {
		return false
	}
	var net int64
	for _, id := range f.order {
		if h := f.holders[id]; h.moving || !h.reads && !h.gone && x.net(id) > x.used(id) {
			return false
		}
		net += x.net(id)
	}
	return net == rows
}

// closeEpoch gives each reader its number of records, after those that are missing have been moved.
func (f *Feed) closeEpoch(x *epoch) []Order {
	if f.mode == unknown && f.Uneven != Stay {
		return nil // it depends on how programs read
	}
	if f.mode == even {
		if moves, waits := f.equalize(x); waits {
			return moves
		}
		if reason := f.tooFew(x); reason != "" {
			return f.fail(reason)
		}
	}
	x.over = true
	orders := f.epochOver(x)
	if !x.last {
		return orders
	}
	return append(orders, f.end("", f.More)...)
}

// equalize moves records beyond a reader's target to readers below theirs. It reports whether a reader is below its
// target.
func (f *Feed) equalize(x *epoch) (moves []Order, waits bool) {
	readers := f.readers()
	f.setTargets(x, readers)
	missing := map[string]int64{}
	for _, h := range readers {
		if lack := x.target[h.id] - x.net(h.id); lack > 0 {
			missing[h.id] = lack
		}
	}
	for _, from := range readers {
		surplus := x.net(from.id) - x.target[from.id]
		for _, to := range readers {
			if rows := min(surplus, missing[to.id]); rows > 0 && !from.moving && !from.empty {
				missing[to.id] -= rows
				moves = append(moves, f.move(from, x, rows, to))
			}
		}
	}
	return moves, len(missing) > 0
}

// setTargets determines, once, how many records each reader gets: the same number, and one more for some where
// nothing is left out.
func (f *Feed) setTargets(x *epoch, readers []*holder) {
	lacks := func(h *holder) bool { _, has := x.target[h.id]; return !has }
	if len(x.target) == len(readers) && !slices.ContainsFunc(readers, lacks) {
		return // otherwise it is the first time, or a program has left since
	}
	var total int64
	for _, h := range readers {
		total += x.net(h.id)
	}
	n := int64(len(readers))
	x.target = map[string]int64{}
	for _, h := range readers {
		x.target[h.id] = total / n
	}
	if f.Uneven == Drop {
		return
	}
	for more := total % n; more > 0; more-- { // for those that have most: fewer records move
		var best *holder
		for _, h := range readers {
			if x.target[h.id] == total/n && (best == nil || x.net(h.id) > x.net(best.id)) {
				best = h
			}
		}
		x.target[best.id]++
	}
}

// tooFew returns a text if an epoch has fewer records than there are programs that read equal numbers; "" otherwise.
func (f *Feed) tooFew(x *epoch) string {
	var total int64
	readers := f.readers()
	for _, h := range readers {
		total += x.net(h.id)
	}
	if total >= int64(len(readers)) {
		return ""
	}
	noun := "records"
	if total == 1 {
		noun = "record"
	}
	return fmt.Sprintf("%d %s cannot be shared by %d workers that read with as_dataset or fit: each needs one", total,
		noun, len(readers))
}

// epochOver returns the orders that end an epoch at each reader.
func (f *Feed) epochOver(x *epoch) []Order {
	most, least := int64(0), int64(math.MaxInt64)
	rows := map[string]int64{}
	for _, h := range f.readers() {
		rows[h.id] = x.net(h.id)
		if f.mode == even {
			rows[h.id] = x.target[h.id]
		}
		most, least = max(most, rows[h.id]), min(least, rows[h.id])
		x.leftOut += x.net(h.id) - rows[h.id]
	}
	x.given = rows
	var orders []Order
	for _, id := range f.order {
		if !f.holders[id].reads {
			continue
		}
		over := &clusterpb.FeedEpochOver{Feed: f.ID, Epoch: x.number, Rows: rows[id], Most: most, Least: least}
		if f.mode == even && f.Uneven == Pad {
			over.Repeat = most - rows[id]
		}
		orders = append(orders, orderEpochOver(id, over))
	}
	return orders
}

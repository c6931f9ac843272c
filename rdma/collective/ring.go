package collective

import (
	"context"
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// lead is the leader's part in a call of several hosts: the result is in its slot, and its host knows.
func (g *Group) lead(ctx context.Context, call Call) error {
	if err := g.collect(call); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	neighbours := []int{g.leader(g.host - 1), g.leader(g.host + 1)}
	slices.Sort(neighbours) // of two hosts it is the same one twice
	if err := g.announce(ctx, call, slices.Compact(neighbours), open); err != nil {
		return err
	}
	var err error
	switch call.Kind {
	case AllReduce:
		err = g.ringReduce(ctx, call)
	case Broadcast:
		err = g.ringBroadcast(ctx, call)
	case AllGather:
		err = g.ringGather(ctx, call)
	}
	if err != nil {
		return err
	}
	return g.tell(ctx, g.local, finished, g.calls, transport.Place{Slot: controlSlot}, nil)
}

// leader returns the first rank of a host, whose number is taken modulo the number of hosts.
func (g *Group) leader(host int) int {
	n := len(g.cfg.Hosts)
	return g.cfg.Hosts[(host%n+n)%n][0]
}

// collect brings what this host has to the leader's slot.
func (g *Group) collect(call Call) error {
	return g.with(g.local, int(g.calls%2), func(slots, _ [][]byte) error {
		own := slots[0]
		switch call.Kind {
		case AllReduce:
			for i := range slots {
				begin, end := part(call.Size, call.Type.Size(), i, len(slots))
				copy(own[begin:end], slots[i][begin:end])
			}
		case Broadcast:
			if at := slices.Index(g.local, call.Root); at > 0 {
				copy(own[:call.Size], slots[at])
			}
		case AllGather:
			for i, rank := range g.local { // the own one first: it is where another one's may come to be
				copy(own[int64(rank)*call.Size:][:call.Size], slots[i])
			}
		}
		return nil
	})
}

// pass writes bytes [begin, end) of the own slot into a slot of the leader behind, at an offset.
func (g *Group) pass(ctx context.Context, slot int, begin, end, to int64) error {
	g.sent++
	return g.cfg.Own.Use(func(own [][]byte) error {
		return g.tell(ctx, []int{g.leader(g.host + 1)}, passed, g.sent, transport.Place{Slot: slot, Offset: to},
			own[g.calls%2][begin:end])
	})
}

// takePieces waits for pieces of the leader before.
func (g *Group) takePieces(ctx context.Context, call Call, n int) error {
	g.passes += uint64(n)
	return g.await(ctx, call, []int{g.leader(g.host - 1)}, passed, g.passes)
}

// ringReduce sums up each part along the ring, then passes the sums along it.
func (g *Group) ringReduce(ctx context.Context, call Call) error {
	hosts, slot := len(g.cfg.Hosts), int(g.calls%2)
	bounds := func(of int) (begin, end int64) {
		return part(call.Size, call.Type.Size(), (of%hosts+hosts)%hosts, hosts)
	}
	for step := range hosts - 1 {
		begin, end := bounds(g.host - step)
		if err := g.pass(ctx, ringSlot, begin, end, begin); err != nil {
			return err
		}
		if err := g.takePieces(ctx, call, 1); err != nil {
			return err
		}
		begin, end = bounds(g.host - step - 1)
		err := g.cfg.Own.Use(func(slots [][]byte) error {
			ring, own := slots[ringSlot][begin:end], slots[slot][begin:end]
			return reduce.Into(own, [][]byte{ring, own}, call.Type, call.Op)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	for step := range hosts - 1 {
		begin, end := bounds(g.host + 1 - step)
		if err := g.pass(ctx, slot, begin, end, begin); err != nil {
			return err
		}
		if err := g.takePieces(ctx, call, 1); err != nil {
			return err
		}
	}
	return nil
}

// piece is the size of the pieces in which a vector is passed on: while one is sent, the next one arrives.
const piece = 1 << 20

// ringBroadcast passes the root's vector along the ring, up to the last host before the root's.
func (g *Group) ringBroadcast(ctx context.Context, call Call) error {
	hosts, slot := len(g.cfg.Hosts), int(g.calls%2)
	from := slices.IndexFunc(g.cfg.Hosts, func(ranks []int) bool { return slices.Contains(ranks, call.Root) })
	at := (g.host - from + hosts) % hosts // how far from the root's
	for begin := int64(0); begin < call.Size; begin += piece {
		if at > 0 {
			if err := g.takePieces(ctx, call, 1); err != nil {
				return err
			}
		}
		if at < hosts-1 {
			if err := g.pass(ctx, slot, begin, min(begin+piece, call.Size), begin); err != nil {
				return err
			}
		}
	}
	return nil
}

// ringGather passes the vectors of each host along the ring.
func (g *Group) ringGather(ctx context.Context, call Call) error {
	hosts, slot := len(g.cfg.Hosts), int(g.calls%2)
	for step := range hosts - 1 {
		for _, rank := range g.cfg.Hosts[((g.host-step)%hosts+hosts)%hosts] {
			begin := int64(rank) * call.Size
			if err := g.pass(ctx, slot, begin, begin+call.Size, begin); err != nil {
				return err
			}
		}
		if err := g.takePieces(ctx, call, len(g.cfg.Hosts[((g.host-step-1)%hosts+hosts)%hosts])); err != nil {
			return err
		}
	}
	return nil
}

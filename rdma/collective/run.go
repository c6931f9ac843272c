package collective

import (
	"context"
	"fmt"

	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// Run makes one call, together with all ranks, and returns where its result is. The vector is in the slot Next, from
// its beginning. The result stays until the call after the next one is made. An error ends the group, except for one
// of a call that cannot be made; where ctx ends, it names the ranks that did not arrive.
func (g *Group) Run(ctx context.Context, call Call) ([]Part, error) {
	if err := call.check(len(g.cfg.Names), g.cfg.Own.Segment().SlotSize()); err != nil {
		return nil, err
	}
	g.calls++
	parts, err := g.run(ctx, call)
	if err != nil {
		g.fail(fmt.Errorf("an earlier call failed: %w", err))
		return nil, err
	}
	return parts, nil
}

func (g *Group) run(ctx context.Context, call Call) ([]Part, error) {
	if err := g.announce(ctx, call, g.local, ready); err != nil {
		return nil, err
	}
	if call.Kind == AllReduce {
		if err := g.reduceParts(ctx, call); err != nil {
			return nil, err
		}
	}
	if len(g.cfg.Hosts) == 1 {
		return g.parts(call), nil
	}
	leader, slot := g.local[0], int(g.calls%2)
	size := call.Size
	if call.Kind == AllGather {
		size *= int64(len(g.cfg.Names))
	}
	if leader != g.cfg.Rank {
		if err := g.await(ctx, call, g.local[:1], finished, g.calls); err != nil {
			return nil, err
		}
	} else if err := g.lead(ctx, call); err != nil {
		return nil, err
	}
	return []Part{{Rank: leader, Slot: slot, Size: size}}, nil
}

// announce describes the call to some ranks, waits for their descriptions and compares them.
func (g *Group) announce(ctx context.Context, call Call, ranks []int, kind message) error {
	own := transport.Place{Slot: controlSlot, Offset: description(g.cfg.Rank, g.calls)}
	if err := g.tell(ctx, ranks, kind, g.calls, own, call.encode()); err != nil {
		return err
	}
	if err := g.await(ctx, call, ranks, kind, g.calls); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, rank := range ranks {
		if rank == g.cfg.Rank {
			continue
		}
		if theirs := g.peers[rank].calls[g.calls%2]; theirs != call {
			return fmt.Errorf("call %d of %s is %s, of %s it is %s: all ranks must make the same calls in the same order",
				g.calls, g.name(g.cfg.Rank), call, g.name(rank), theirs)
		}
	}
	return nil
}

// reduceParts combines this rank's part of the host's vectors, and waits until the parts that it needs are combined.
func (g *Group) reduceParts(ctx context.Context, call Call) error {
	at := 0
	for i, rank := range g.local {
		if rank == g.cfg.Rank {
			at = i
		}
	}
	begin, end := part(call.Size, call.Type.Size(), at, len(g.local))
	err := g.with(g.local, int(g.calls%2), func(slots [][]byte) error {
		var sources [][]byte
		for _, s := range slots {
			sources = append(sources, s[begin:end])
		}
		return reduce.Into(sources[at], sources, call.Type, call.Op)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	to := g.local
	if len(g.cfg.Hosts) > 1 {
		to = g.local[:1]
	}
	if err := g.tell(ctx, to, reduced, g.calls, transport.Place{Slot: controlSlot}, nil); err != nil {
		return err
	}
	if len(g.cfg.Hosts) > 1 && g.local[0] != g.cfg.Rank {
		return nil // the leader waits for them
	}
	return g.await(ctx, call, g.local, reduced, g.calls)
}

// parts returns where the result is on one host.
func (g *Group) parts(call Call) []Part {
	slot := int(g.calls % 2)
	switch call.Kind {
	case Broadcast:
		return []Part{{Rank: call.Root, Slot: slot, Size: call.Size}}
	case AllGather:
		var parts []Part
		for _, rank := range g.local {
			parts = append(parts, Part{Rank: rank, Slot: slot, Size: call.Size})
		}
		return parts
	}
	var parts []Part
	for i, rank := range g.local {
		begin, end := part(call.Size, call.Type.Size(), i, len(g.local))
		parts = append(parts, Part{Rank: rank, Slot: slot, Offset: begin, Size: end - begin})
	}
	return parts
}

// with calls use with a slot of several ranks of this host.
func (g *Group) with(ranks []int, slot int, use func(slots [][]byte) error) error {
	var slots [][]byte
	var next func() error
	next = func() error {
		if len(slots) == len(ranks) {
			return use(slots)
		}
		own := g.cfg.Own
		if rank := ranks[len(slots)]; rank != g.cfg.Rank {
			own = g.peers[rank].Memory
		}
		return own.Use(func(all [][]byte) error {
			slots = append(slots, all[slot])
			return next()
		})
	}
	return next()
}

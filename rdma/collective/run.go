package collective

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/reduce"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// Run makes one call, together with all ranks, and returns where its result is. The vector is in the slot Next, from
// its beginning. The result stays until the call after the next one is made. An error ends the group, except for one
// of a call that cannot be made. It is a *LateError where ctx ends, and a *LostError where a rank has left.
func (g *Group) Run(ctx context.Context, call Call) ([]Part, error) {
	if err := call.check(len(g.cfg.Names), len(g.cfg.Hosts), g.cfg.Own.Segment().Layout().SlotSize(0)); err != nil {
		return nil, err
	}
	g.calls++
	parts, err := g.run(ctx, call)
	if err != nil {
		err = g.reason(ctx, call, err)
		g.fail(fmt.Errorf("an earlier call failed: %w", err))
		return nil, err
	}
	return parts, nil
}

// reason returns why a call has failed: what it met may follow from what has ended the group meanwhile, such as memory
// that is no longer mapped, or from the end of its time.
func (g *Group) reason(ctx context.Context, call Call, err error) error {
	g.mu.Lock()
	failed := g.err
	g.mu.Unlock()
	_, late := errors.AsType[*LateError](err)
	switch {
	case late:
		return err
	case ctx.Err() != nil:
		if lost, ok := errors.AsType[*LostError](err); ok {
			return &LateError{call, []string{lost.Name}, context.Cause(ctx)}
		}
		return &LateError{call, nil, err}
	case failed != nil:
		return failed
	}
	return err
}

func (g *Group) run(ctx context.Context, call Call) ([]Part, error) {
	if err := g.announce(ctx, call, g.local, ready); err != nil {
		return nil, err
	}
	if g.isSmall(call) {
		return g.reduceWhole(call)
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
			return g.different(call, rank, theirs)
		}
	}
	return nil
}

// different returns the error of a call that another rank makes in another way.
func (g *Group) different(call Call, rank int, theirs Call) error {
	if theirs.String() == call.String() {
		return fmt.Errorf(
			"call %d is %s on %s and %s, but their arrays have different types or shapes: give the same on all tasks",
			g.calls, call, g.name(g.cfg.Rank), g.name(rank))
	}
	return fmt.Errorf("call %d of %s is %s, of %s it is %s: all tasks must make the same calls in the same order",
		g.calls, g.name(g.cfg.Rank), call, g.name(rank), theirs)
}

// small is the size of a vector that each rank of a host combines as a whole: to hear that others have combined their
// parts takes longer.
const small = 16 << 10

func (g *Group) isSmall(call Call) bool {
	return call.Kind == AllReduce && call.Size <= g.half() && len(g.cfg.Hosts) == 1
}

// half is the size of a small result's place, of which the slot of the ring has two. It is the same for all ranks.
func (g *Group) half() int64 { return min(small, g.cfg.Own.Segment().Layout().SlotSize(ringSlot)/2) }

// reduceWhole combines the host's vectors into the slot of the ring, which one host does not use. Its two halves are
// used by turns, as the slots are.
func (g *Group) reduceWhole(call Call) ([]Part, error) {
	result := Part{Rank: g.cfg.Rank, Slot: ringSlot, Offset: int64(g.calls%2) * g.half(), Size: call.Size}
	err := g.with(g.local, int(g.calls%2), func(slots, own [][]byte) error {
		var sources [][]byte
		for _, s := range slots {
			sources = append(sources, s[:call.Size])
		}
		return reduce.Into(own[result.Slot][result.Offset:][:call.Size], sources, call.Type, call.Op)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", call, err)
	}
	return []Part{result}, nil
}

// reduceParts combines this rank's part of the host's vectors, and waits until the parts that it needs are combined.
func (g *Group) reduceParts(ctx context.Context, call Call) error {
	at := slices.Index(g.local, g.cfg.Rank)
	begin, end := part(call.Size, call.Type.Size(), at, len(g.local))
	err := g.with(g.local, int(g.calls%2), func(slots, _ [][]byte) error {
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
	if call.Kind == Broadcast {
		return []Part{{Rank: call.Root, Slot: slot, Size: call.Size}}
	}
	var parts []Part
	for i, rank := range g.local {
		begin, end := int64(0), call.Size // AllGather, Exchange
		if call.Kind == AllReduce {
			begin, end = part(call.Size, call.Type.Size(), i, len(g.local))
		}
		parts = append(parts, Part{Rank: rank, Slot: slot, Offset: begin, Size: end - begin})
	}
	return parts
}

// with calls use with a slot of several ranks of this host, one of which is this one, and with all slots of this one.
func (g *Group) with(ranks []int, slot int, use func(slots, own [][]byte) error) error {
	var slots, mine [][]byte
	var next func() error
	next = func() error {
		if len(slots) == len(ranks) {
			return use(slots, mine)
		}
		add := func(all [][]byte) error {
			slots = append(slots, all[slot])
			return next()
		}
		rank := ranks[len(slots)]
		if rank == g.cfg.Rank {
			return g.cfg.Own.Use(func(all [][]byte) error {
				mine = all
				return add(all)
			})
		}
		err := g.peers[rank].Memory.Use(add)
		if _, known := errors.AsType[*LostError](err); !known && errors.Is(err, memory.ErrClosed) {
			return &LostError{g.name(rank), err}
		}
		return err
	}
	return next()
}

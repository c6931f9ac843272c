package collective

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// The slots of a rank's memory.
const (
	ringSlot    = 2 // parts on their way along the ring
	controlSlot = 3 // descriptions of the peers' calls, by rank
	slots       = 4
)

// ProgramSlots is the number of slots, from the first one on, that a rank's program maps: it writes its vectors to the
// first two by turns, and a small result is in the third.
const ProgramSlots = 3

// Layout returns the slots of a rank's memory for vectors of a size in bytes: those of its program and of the ring, and
// a small one for descriptions of calls.
func Layout(vector int64) memory.Layout {
	return memory.Layout{{Slots: ringSlot + 1, Size: vector}, {Slots: 1, Size: maxRanks * 2 * callSize}}
}

// maxRanks bounds the ranks of a group.
const maxRanks = 4096

// Peer is another rank.
type Peer struct {
	Link transport.Link
	// Memory is the peer's memory in this process; nil for a peer on another host.
	Memory *memory.Mapping
}

// Config describes a group.
type Config struct {
	Rank  int
	Names []string // of the ranks, for people: "worker:1"
	// Hosts are the ranks of each host, in rising order. All members have the same.
	Hosts [][]int
	Own   *memory.Mapping
	// Peers are the other ranks of this host and, for the first rank of a host, the first ranks of the hosts before
	// and behind it in the ring.
	Peers map[int]Peer
}

// Group is one rank's part in the calls of all. Run is called by one goroutine at a time.
type Group struct {
	// not changed after New
	cfg   Config
	local []int // ranks of this host
	host  int   // number of this host
	work  sync.WaitGroup

	// of the goroutine that calls Run
	calls  uint64 // made so far
	passes uint64 // pieces that have come along the ring
	sent   uint64 // pieces that were passed on along it

	mu      sync.Mutex
	err     error         // guarded by mu; not nil once the group has failed
	changed chan struct{} // guarded by mu; closed and made anew when a peer's state changes
	peers   map[int]*peer // each guarded by mu
}

// peer is what another rank has said.
type peer struct {
	Peer
	said  [messages]uint64 // the number of the last message of each kind
	calls [2]Call          // the last two, by their number mod 2
	lost  error            // why its link has ended; it may have left in order, with all results
}

// message is the kind of a write between ranks: the upper byte of its immediate.
type message uint32

const (
	ready    message = iota // to the ranks of the host: the vector is there; with a description of the call
	reduced                 // to them: the part of this rank is combined
	open                    // to the leaders before and behind: the slot can be written; with a description of the call
	passed                  // to the leader behind: a piece is in the ring's slot, or at its place
	finished                // of a leader to its host: the result is in its slot
	messages                // their number
)

// numbers masks what an immediate has of a message's number.
const numbers = 1<<24 - 1

func (m message) immediate(n uint64) uint32 { return uint32(m)<<24 | uint32(n&numbers) }

// description is the offset at which a rank describes call n in the control slot of others. There are two for each
// rank, because it may be one call ahead.
func description(rank int, n uint64) int64 { return (2*int64(rank) + int64(n%2)) * callSize }

// New returns the group of one rank. It takes over the links of the peers, also if it fails. Close must be called.
func New(cfg Config) (*Group, error) {
	g := &Group{cfg: cfg, changed: make(chan struct{}), peers: map[int]*peer{}}
	for number, ranks := range cfg.Hosts {
		if slices.Contains(ranks, cfg.Rank) {
			g.host, g.local = number, ranks
		}
	}
	if err := g.check(); err != nil {
		for _, p := range cfg.Peers {
			_ = p.Link.Close() // its error is of no use any more
		}
		return nil, err
	}
	for rank, p := range cfg.Peers {
		g.peers[rank] = &peer{Peer: p}
	}
	for rank, p := range g.peers {
		g.work.Go(func() { g.listen(rank, p) })
	}
	return g, nil
}

// check returns an error for memory that calls cannot use.
func (g *Group) check() error {
	if own := g.cfg.Own.Segment().Layout(); own.Slots() != slots || g.local == nil ||
		own.SlotSize(controlSlot) < description(len(g.cfg.Names), 0) {
		return fmt.Errorf("rank %d, which has memory of %s, cannot be one of a group of %d ranks on %d hosts", g.cfg.Rank,
			own, len(g.cfg.Names), len(g.cfg.Hosts))
	}
	for rank, p := range g.cfg.Peers {
		if err := g.checkPeer(rank, p); err != nil {
			return err
		}
	}
	return nil
}

// checkPeer returns an error for memory of a peer that is not as the own one: calls read and write it unchecked.
func (g *Group) checkPeer(rank int, p Peer) error {
	isLocal := slices.Contains(g.local, rank)
	switch own := g.cfg.Own.Segment().Layout(); {
	case isLocal != (p.Memory != nil):
		return fmt.Errorf("the memory of %s is mapped here: %t; but it runs on this host: %t", g.name(rank),
			p.Memory != nil, isLocal)
	case isLocal && !slices.Equal(p.Memory.Segment().Layout(), own):
		return fmt.Errorf("the memory of %s has %s, not %s", g.name(rank), p.Memory.Segment().Layout(), own)
	}
	return nil
}

// Next returns the slot in which the vector of the next call is expected.
func (g *Group) Next() int { return int((g.calls + 1) % 2) }

// Close ends the group and its links. The other ranks fail.
func (g *Group) Close() {
	g.fail(fmt.Errorf("%s has left the group", g.name(g.cfg.Rank)))
	for _, p := range g.peers {
		_ = p.Link.Close() // its error is of no use any more
	}
	g.work.Wait()
}

func (g *Group) name(rank int) string { return g.cfg.Names[rank] }

// listen takes what a peer says until its link ends.
func (g *Group) listen(rank int, p *peer) {
	for c := range p.Link.Completions() {
		if err := g.hear(rank, p, c); err != nil {
			g.fail(err)
			_ = p.Link.Close()
			return
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.lost = &LostError{g.name(rank), p.Link.Err()}
	g.wake()
}

// hear notes one message.
func (g *Group) hear(rank int, p *peer, c transport.Completion) error {
	kind := message(c.Immediate >> 24)
	if kind >= messages {
		return fmt.Errorf("%w: %s sent a message of the unknown kind %d", transport.ErrProtocol, g.name(rank), kind)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	ahead := uint64(c.Immediate-uint32(p.said[kind])) & numbers
	if ahead == 0 || ahead > numbers/2 {
		return fmt.Errorf("%w: %s sent message %#x after message number %d", transport.ErrProtocol, g.name(rank), c.Immediate,
			p.said[kind])
	}
	p.said[kind] += ahead
	n := p.said[kind]
	if kind == ready || kind == open {
		err := g.cfg.Own.Use(func(slots [][]byte) error {
			p.calls[n%2] = decodeCall(slots[controlSlot][description(rank, n):])
			return nil
		})
		if err != nil {
			return fmt.Errorf("read which collective call %s makes: %w", g.name(rank), err)
		}
	}
	g.wake()
	return nil
}

// wake tells who waits that something has changed. Caller holds mu.
func (g *Group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// fail ends every call; the first reason counts.
func (g *Group) fail(reason error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = reason
		g.wake()
	}
}

// await waits until ranks have said something n times.
func (g *Group) await(ctx context.Context, call Call, ranks []int, kind message, n uint64) error {
	for {
		g.mu.Lock()
		var missing []string
		err, changed := g.err, g.changed
		for _, rank := range ranks {
			if rank != g.cfg.Rank && g.peers[rank].said[kind] < n {
				missing = append(missing, g.name(rank))
				err = cmp.Or(err, g.peers[rank].lost)
			}
		}
		g.mu.Unlock()
		switch {
		case len(missing) == 0: // also where one of them has left since: it had what it needed
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return &LateError{call, missing, context.Cause(ctx)}
		}
	}
}

// tell sends a message to ranks, behind data that is written to a place of their memory.
func (g *Group) tell(ctx context.Context, ranks []int, kind message, n uint64, to transport.Place, data []byte) error {
	for _, rank := range ranks {
		if rank == g.cfg.Rank {
			continue
		}
		if err := g.peers[rank].Link.Write(ctx, to, data, kind.immediate(n)); err != nil {
			return &LostError{g.name(rank), err}
		}
	}
	return nil
}

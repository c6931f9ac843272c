package coordinator

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// address is where agents dial the driver. Any goroutine may read it.
type address struct {
	now    atomic.Pointer[string]
	before string     // of whoever calls Moved: the address before
	mu     sync.Mutex // held while agents are told of the address, for movedLimit at most
}

func (a *address) get() string { return *a.now.Load() }

// Times of a driver that agents have to look for.
const (
	movedPause = 5 * time.Second // between two tries to have them told
	movedLimit = 10 * time.Second
)

// Address is where agents dial the driver now. It may be called from any goroutine.
func (c *Coordinator) Address() string { return c.address.get() }

// Moves is whether agents can be told of another address of the driver's. It waits for
// the engine's answer to the reservation, and is false where that does not come.
func (c *Coordinator) Moves(ctx context.Context) bool {
	select {
	case <-c.reserved.allocated:
	case <-c.done:
		return false
	case <-ctx.Done():
		return false
	}
	_, ok := c.reserved.alloc.(cluster.AddressPublisher)
	return ok
}

// Moved has agents find the driver at another address from now on, at which it listens:
// this host's has changed. Where it fails it is to be called again. Call it where Moves,
// from one goroutine.
func (c *Coordinator) Moved(ctx context.Context, address string) error {
	if now := c.address.get(); now != address {
		c.address.before = now
		c.address.now.Store(&address)
		c.post(c.saveState)
	}
	return c.tellMoved(ctx, c.address.before)
}

// takeAddress is Moved for what an earlier driver's agents know, until they can find this
// one.
func (c *Coordinator) takeAddress(ctx context.Context) {
	for c.tellMoved(ctx, c.cfg.Recovered.Address) != nil {
		select {
		case <-ctx.Done():
			return
		case <-time.After(movedPause):
		}
	}
}

// tellMoved has the engine tell agents where the driver is, and says how that goes.
func (c *Coordinator) tellMoved(ctx context.Context, before string) error {
	c.address.mu.Lock() // whoever tells last tells the newest
	defer c.address.mu.Unlock()
	address := c.address.get()
	words := fmt.Sprintf("this machine's address for executors was %s and is %s", before, address)
	mover, ok := c.reserved.alloc.(cluster.AddressPublisher)
	if !ok {
		c.post(func() {
			c.noteOnce(words + ": those that are there do not know it, and are replaced when they have been missed for long enough, or by reset --hard")
		})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, movedLimit)
	defer cancel()
	err := mover.PublishAddress(ctx, address)
	if err != nil {
		c.post(func() { c.noteOnce(words + "; they cannot be told yet: " + summary(err.Error())) })
		return err
	}
	c.post(func() { c.noteOnce(words + ": they look it up on HDFS") })
	return nil
}

// summary is the first line of a text.
func summary(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

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

// address is the driver's address for agents. Any goroutine may call get.
type address struct {
	now      atomic.Pointer[string]
	previous string     // the previous address; only PublishAddress uses it
	mu       sync.Mutex // held while the address is published, for publishLimit at most
}

func (a *address) get() string { return *a.now.Load() }

// Times of publishing the address.
const (
	publishRetry = 5 * time.Second // between two attempts
	publishLimit = 10 * time.Second
)

// Address returns the driver's current address for agents. Any goroutine may call it.
func (c *Coordinator) Address() string { return c.address.get() }

// CanPublishAddress returns whether the engine can tell agents another address. It waits until
// the engine has answered the reservation; false if the cluster ends before, or ctx.
func (c *Coordinator) CanPublishAddress(ctx context.Context) bool {
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

// PublishAddress tells agents another address of this host, at which the driver listens
// already. After an error it must be called again. It may only be called if CanPublishAddress
// returned true, and by one goroutine.
func (c *Coordinator) PublishAddress(ctx context.Context, address string) error {
	if now := c.address.get(); now != address {
		c.address.previous = now
		c.address.now.Store(&address)
		c.post(c.saveState)
	}
	return c.publishAddress(ctx, c.address.previous)
}

// publishRecovered publishes the address to the agents of an earlier driver, until that
// succeeds.
func (c *Coordinator) publishRecovered(ctx context.Context) {
	for c.publishAddress(ctx, c.cfg.Recovered.Address) != nil && c.sleep(ctx, publishRetry) == nil {
	}
}

// publishAddress has the engine publish the address and adds a note with the result.
func (c *Coordinator) publishAddress(ctx context.Context, before string) error {
	c.address.mu.Lock() // so that the last call publishes the newest address
	defer c.address.mu.Unlock()
	address := c.address.get()
	say := func(text string) {
		c.post(func() {
			c.noteOnce(fmt.Sprintf("this machine's address for executors was %s and is %s%s", before, address, text))
		})
	}
	mover, ok := c.reserved.alloc.(cluster.AddressPublisher)
	if !ok {
		say(": agents cannot be told; their executors are replaced when they have been silent for too long, " +
			"or by reset --hard")
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publishLimit)
	defer cancel()
	err := mover.PublishAddress(ctx, address)
	if err != nil {
		say("; agents cannot be told yet: " + summary(err.Error()))
		return err
	}
	say(": agents read it from HDFS")
	return nil
}

// summary returns the first line of a text.
func summary(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

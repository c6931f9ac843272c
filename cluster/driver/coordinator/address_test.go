package coordinator

import (
	"context"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// slowly is an engine that takes its time to write the first address down, until the
// driver has another.
type slowly struct {
	*engine
	telling chan struct{} // closed when it begins to
	another func() bool   // whether the driver has
	written chan string
}

func (s *slowly) Allocate(ctx context.Context, r cluster.Request) (cluster.Allocation, error) {
	_, err := s.engine.Allocate(ctx, r)
	return s, err
}

func (s *slowly) Recover(ctx context.Context, r cluster.Request, _ []byte) (cluster.Allocation, error) {
	return s.Allocate(ctx, r)
}

func (s *slowly) PublishAddress(ctx context.Context, address string) error {
	if address == "first:1" {
		close(s.telling)
		for !s.another() && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // for the other to overtake it, if that could be
	}
	s.written <- address
	return ctx.Err()
}

// TestMovedInOrder: a host that gets another address while the one before is written down
// for agents leaves them the newest.
func TestMovedInOrder(t *testing.T) {
	t.Parallel()
	var s *slowly
	c := coordinate(t, false, func(cfg *Config) {
		s = &slowly{engine: cfg.Backend.(*engine), telling: make(chan struct{}), written: make(chan string, 2)}
		cfg.Backend, cfg.Recovered.Saved, cfg.Recovered.Address, cfg.Address = s, []byte("null"), "earlier:1", "first:1"
	})
	s.another = func() bool { return c.Address() == "second:1" }
	s.answer <- nil
	ctx, last := within(t), ""
	select {
	case <-s.telling:
	case <-ctx.Done():
		t.Fatal("agents are told nothing")
	}
	if err := c.PublishAddress(ctx, "second:1"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		select {
		case last = <-s.written:
		case <-ctx.Done():
			t.Fatal("one of the two does not come to an end")
		}
	}
	if last != "second:1" {
		t.Errorf("agents are left %s", last)
	}
}

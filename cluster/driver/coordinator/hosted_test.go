package coordinator

import (
	"context"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// TestStartIsToldWhenKept: a client hears how its start went when the next driver would know
// of the run too.
func TestStartIsToldWhenKept(t *testing.T) {
	t.Parallel()
	asked, kept := make(chan struct{}), make(chan struct{})
	c := coordinate(t, true, func(cfg *Config) {
		cfg.Hooks.Flush = func(ctx context.Context) error {
			close(asked)
			select {
			case <-kept:
			case <-ctx.Done():
				t.Error("it is not awaited for long enough")
			}
			return nil
		}
	})
	told := make(chan *clusterpb.StartUpdate, 100)
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	stream.every = func(u *clusterpb.StartUpdate) {
		told <- u
		c.post(func() { c.handle(lifecycle.PortPrepared{Exec: "0", Run: 1, Attempt: 1, Err: "no port is free"}) })
	}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Control().(*control).Start(
			&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}, stream)
	}()
	<-asked
	for len(told) > 0 {
		if u := <-told; u.GetFailure() != nil || u.GetEntered() {
			t.Errorf("before it is kept, the client is told %v", u)
		}
	}
	close(kept)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(told) == 0 {
		t.Error("the client is not told how it ended")
	}
}

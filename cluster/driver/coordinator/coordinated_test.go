package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// coordinated is a coordinator that runs, with two workers that are ready unless the
// engine has not answered.
type coordinated struct {
	*Coordinator
	t      *testing.T
	engine *engine
	saved  chan string
	mute   bool // the agents send no heartbeats; owned by the loop
}

func coordinate(t *testing.T, answered bool, change ...func(*Config)) *coordinated {
	t.Helper()
	e := &engine{answer: make(chan error, 1), events: make(chan cluster.Event, 16)}
	c := &coordinated{t: t, engine: e, saved: make(chan string, 64)}
	authority, err := auth.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Name: "test", Request: &clusterpb.ReserveRequest{Roles: []*clusterpb.Role{{Name: cluster.Worker, Count: 2}}},
		Authority: authority, StateDir: t.TempDir(), Directory: Directory{Dir: t.TempDir()}, Backend: e,
		Hooks: Hooks{SaveState: func(_ string, saved []byte, _ int32, _ bool) error { c.saved <- string(saved); return nil }},
	}
	for _, f := range change {
		f(&cfg)
	}
	c.Coordinator = New(cfg)
	over := make(chan error, 1)
	go func() { over <- c.Run(context.Background()) }()
	t.Cleanup(func() {
		c.post(func() { c.handle(lifecycle.ShutdownRequested{Reason: "the test is over"}) })
		select {
		case err := <-over:
			if !errors.Is(err, e.stuck) {
				t.Errorf("the cluster's end: %v", err)
			}
		case <-time.After(deadline):
			t.Error("the cluster does not end")
		}
	})
	if answered {
		e.answer <- nil
		c.up("0", 0)
		c.up("1", 0)
	}
	return c
}

// up lets an executor's agent join, which then sends heartbeats.
func (c *coordinated) up(id cluster.ExecutorID, attempt int) *agentConn {
	conn := newAgentConn(id)
	c.do(func() {
		c.join(conn, &clusterpb.Hello{
			Protocol: clusterpb.Protocol, ExecutorId: string(id), Attempt: int32(attempt), Incarnation: fmt.Sprint(id, attempt),
			Host: "host" + string(id), Warmed: true,
		})
	})
	go func() { // ends with the cluster
		for c.sleep(context.Background(), c.cfg.Timing.Heartbeat) == nil {
			c.post(func() {
				if !c.mute {
					conn.hear(time.Now(), c.execs.usual)
				}
			})
		}
	}()
	return conn
}

// silence ends the agents' heartbeats.
func (c *coordinated) silence() { c.do(func() { c.mute = true }) }

// do runs f in the loop.
func (c *coordinated) do(f func()) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := c.call(ctx, f); err != nil {
		c.t.Fatal(err)
	}
}

// sent is a server stream whose updates a test reads.
type sent[T any] struct {
	grpc.ServerStream
	ctx   context.Context
	every func(*T)
}

func (s *sent[T]) Context() context.Context { return s.ctx }
func (s *sent[T]) Send(u *T) error          { s.every(u); return nil }

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	t.Cleanup(cancel)
	return ctx
}

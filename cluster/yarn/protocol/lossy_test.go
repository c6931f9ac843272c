package protocol_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// road is a network between a master and its ResourceManager that can lose answers.
type road struct {
	to       string
	listener net.Listener
	done     sync.WaitGroup

	mu     sync.Mutex
	cut    bool                  // guarded by mu: what the server sends is lost, with its connection
	conns  map[net.Conn]struct{} // guarded by mu
	closed bool                  // guarded by mu
}

func newRoad(t *testing.T, to string) *road {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &road{to: to, listener: l, conns: map[net.Conn]struct{}{}}
	r.done.Go(r.accept)
	t.Cleanup(func() {
		l.Close()
		r.mu.Lock()
		r.closed = true
		for c := range r.conns {
			c.Close()
		}
		r.mu.Unlock()
		r.done.Wait()
	})
	return r
}

func (r *road) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		if r.isCut() || !r.add(c) {
			c.Close()
			continue
		}
		r.done.Go(func() { r.carry(c) })
	}
}

func (r *road) carry(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", r.to, time.Minute)
	if err != nil || !r.add(server) {
		return
	}
	defer server.Close()
	r.done.Go(func() { _, _ = io.Copy(server, client) }) // ends with the connections
	b := make([]byte, 64<<10)
	for {
		n, err := server.Read(b)
		if err != nil || r.isCut() {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// add has a connection ended with the test.
func (r *road) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = struct{}{}
	return !r.closed
}

func (r *road) isCut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cut
}

func (r *road) setCut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cut = cut
}

// testLostAnswer: a heartbeat that the ResourceManager heard, but of which the answer was
// lost, is said again as it was: what was wished for and given back meanwhile is not lost.
func testLostAnswer(t *testing.T, y *yarn) {
	way := newRoad(t, y.hadoop.Host+":8030")
	one := *y
	one.conf = y.conf.With("yarn.resourcemanager.scheduler.address", way.listener.Addr().String())
	m := submit(t, &one, nil)
	m.Close()
	short, err := protocol.NewMaster(one.conf, m.State(), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { short.Close() })
	m.Master = short
	m.register()
	first := m.containers(small(1))[0]
	way.setCut(true)
	m.Ask(small(2))
	if _, err := m.Allocate(m.ctx, 0); !errors.Is(err, protocol.ErrUnreachable) {
		t.Fatalf("the answer is lost: %v", err)
	}
	way.setCut(false)
	m.Ask(small(3))
	m.Release(first.GetId())
	m.until("what was wished for around the loss is given", func(protocol.Beat) bool { return m.given[2] != nil && m.given[3] != nil })
	m.awaitEnd(first)
	m.finish()
}

// testStartTwice: a container whose start was asked for again, since the answer was lost,
// runs.
func testStartTwice(t *testing.T, y *yarn) {
	m := submit(t, y, nil)
	m.register()
	c := m.containers(small(1))[0]
	for range 2 {
		if err := m.nodes.Start(m.ctx, c, &yarnpb.ContainerLaunchContext{Command: []string{"exec sleep 300"}}); err != nil {
			t.Error(err)
		}
	}
	m.finish()
}

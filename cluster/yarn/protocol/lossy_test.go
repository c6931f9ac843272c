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

// lossyLink is a TCP proxy between a master and its ResourceManager that can lose responses.
type lossyLink struct {
	to       string
	listener net.Listener
	done     sync.WaitGroup

	mu       sync.Mutex
	dropping bool                  // guarded by mu: responses are lost and their connections closed
	conns    map[net.Conn]struct{} // guarded by mu
	closed   bool                  // guarded by mu
}

func newLossyLink(t *testing.T, to string) *lossyLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &lossyLink{to: to, listener: l, conns: map[net.Conn]struct{}{}}
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

func (r *lossyLink) accept() {
	for {
		c, err := r.listener.Accept()
		if err != nil {
			return
		}
		if r.isDropping() || !r.add(c) {
			c.Close()
			continue
		}
		r.done.Go(func() { r.forward(c) })
	}
}

func (r *lossyLink) forward(client net.Conn) {
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
		if err != nil || r.isDropping() {
			return
		}
		if _, err := client.Write(b[:n]); err != nil {
			return
		}
	}
}

// add registers a connection that is closed at the end of the test. It returns false after that.
func (r *lossyLink) add(c net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns[c] = struct{}{}
	return !r.closed
}

func (r *lossyLink) isDropping() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.dropping
}

func (r *lossyLink) setDropping(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropping = cut
}

// testLostAnswer: a heartbeat whose response was lost is repeated unchanged, and the requests and releases
// made meanwhile are not lost.
func testLostAnswer(t *testing.T, y *yarn) {
	link := newLossyLink(t, y.hadoop.Host+":8030")
	one := *y
	one.conf = y.conf.With("yarn.resourcemanager.scheduler.address", link.listener.Addr().String())
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
	link.setDropping(true)
	m.Request(small(2))
	if _, err := m.Allocate(m.ctx, 0); !errors.Is(err, protocol.ErrUnreachable) {
		t.Fatalf("the response is lost: %v", err)
	}
	link.setDropping(false)
	m.Request(small(3))
	m.Release(first.GetId())
	m.until("the requests around the loss are allocated",
		func(protocol.Heartbeat) bool { return m.allocated[2] != nil && m.allocated[3] != nil })
	m.awaitEnd(first)
	m.finish()
}

// testStartTwice: a container runs although its start was repeated, as after a lost response.
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

package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// TestConformance: the tests of each provider run one after the other, because the last part counts what is open.
func TestConformance(t *testing.T) {
	for _, w := range ways(t) {
		t.Run(w.name, func(t *testing.T) {
			if w.missing != "" {
				t.Skip(w.missing)
			}
			before := open(t)
			for name, test := range map[string]func(*testing.T, way){
				"order": testOrder, "sizes": testSizes, "both ways": testBothWays, "bounds": testBounds, "not ready": testNotReady,
				"given up": testGivenUp, "closed": testClosed, "reconnect": testReconnect, "hostile": testHostile,
				"killed": testKilled, "handshake": testHandshake,
			} {
				t.Run(name, func(t *testing.T) { test(t, w) })
			}
			deadline := time.Now().Add(longest)
			for open(t) != before && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if after := open(t); after != before {
				t.Errorf("open before: %s; after: %s", before, after)
			}
		})
	}
}

// testOrder: completions have the order of the writes and their immediates, also those without data.
func testOrder(t *testing.T, w way) {
	a, b := linked(t, w, 2, 1<<16)
	const writes = 2000
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range uint32(writes) {
			data := []byte(fmt.Sprint(i))
			if i%3 == 0 {
				data = nil
			}
			if err := a.Write(t.Context(), Place{int(i % 2), int64(i) * 8}, data, i*i); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range uint32(writes) {
		c, _ := b.next(t)
		want := Completion{Place{int(i % 2), int64(i) * 8}, int64(len(fmt.Sprint(i))), i * i}
		if i%3 == 0 {
			want.Size = 0
		}
		if c != want || want.Size > 0 && string(b.received(t, c)) != fmt.Sprint(i) {
			t.Fatalf("completion %d is %+v with %q", i, c, b.received(t, c))
		}
	}
	writer.Wait() // the last write is seen before it returns
}

// testSizes: nothing, single bytes, whole slots, and places that are not aligned.
func testSizes(t *testing.T, w way) {
	const slotSize = 64 << 20
	a, b := linked(t, w, 1, slotSize)
	random := rand.NewChaCha8([32]byte{1})
	data := make([]byte, slotSize)
	_, _ = random.Read(data[:1<<20+3])
	copy(data[slotSize/2:], data[:])
	for _, size := range []int64{0, 1, 7, 4095, 4096, 4097, 1<<20 - 3, slotSize} {
		data := data[:size]
		at := Place{Offset: min(3, slotSize-size)}
		done := make(chan struct{})
		go func() {
			defer close(done)
			a.write(t, at, data, 1)
		}()
		c, _ := b.next(t)
		if c != (Completion{at, size, 1}) || !bytes.Equal(b.received(t, c), data) {
			t.Errorf("%d bytes arrive as %+v", size, c)
		}
		<-done
	}
}

// testBothWays: both ends write large data at the same time, with several goroutines each.
func testBothWays(t *testing.T, w way) {
	a, b := linked(t, w, 4, 1<<20)
	var work sync.WaitGroup
	for _, e := range []*end{a, b} {
		for slot := range 4 {
			work.Go(func() {
				data := bytes.Repeat([]byte{byte(slot + 1)}, 1<<20)
				for range 5 {
					if err := e.Write(t.Context(), Place{Slot: slot}, data, uint32(slot)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		work.Go(func() {
			for range 20 {
				c, more := <-e.Completions()
				if !more || c.Immediate != uint32(c.Slot) {
					t.Errorf("completion %+v, %v", c, e.Err())
				}
			}
		})
	}
	work.Wait()
	for slot := range 4 {
		if got := b.received(t, Completion{Place: Place{Slot: slot}, Size: 1 << 20}); !bytes.Equal(got,
			bytes.Repeat([]byte{byte(slot + 1)}, 1<<20)) {
			t.Errorf("slot %d has something else", slot)
		}
	}
}

// testBounds: a write that is not within a slot is refused, and the link continues.
func testBounds(t *testing.T, w way) {
	a, b := linked(t, w, 2, 4096)
	for _, to := range []Place{{2, 0}, {-1, 0}, {0, 4096}, {0, -1}, {0, 1<<63 - 1}} {
		if err := a.Write(t.Context(), to, []byte{1}, 0); err == nil ||
			!strings.Contains(err.Error(), "not fit into memory of 2 slots of 4096 bytes") {
			t.Errorf("%+v: %v", to, err)
		}
	}
	a.write(t, Place{1, 4095}, []byte{7}, 5)
	if c, _ := b.next(t); c.Immediate != 5 {
		t.Errorf("then %+v", c)
	}
}

// testNotReady: a writer waits for a peer that takes no completions, and nothing is lost when the peer takes them.
func testNotReady(t *testing.T, w way) {
	a, b := linked(t, w, 1, 1<<16)
	data := make([]byte, 1<<16)
	wrote := make(chan int, 1)
	go func() {
		n := 0
		defer func() { wrote <- n }()
		for ; n < 5000; n++ {
			if err := a.Write(t.Context(), Place{}, data, uint32(n)); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	select {
	case n := <-wrote:
		t.Fatalf("%d writes did not wait for the peer", n)
	case <-time.After(200 * time.Millisecond):
	}
	for i := range uint32(5000) {
		if c, _ := b.next(t); c.Immediate != i {
			t.Fatalf("completion %d is %+v", i, c)
		}
	}
	if n := <-wrote; n != 5000 {
		t.Errorf("%d writes", n)
	}
}

// testGivenUp: a write does not wait longer than its context, and the link ends at both ends.
func testGivenUp(t *testing.T, w way) {
	a, b := linked(t, w, 1, 1<<16)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Write(ended, Place{}, nil, 0); !errors.Is(err, context.Canceled) || a.Err() != nil {
		t.Errorf("with a context that has ended: %v; the link: %v", err, a.Err())
	}
	var err error
	// One of the writes has to wait. A write that has not begun at its deadline would leave the link as it is.
	for err == nil {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		err = a.Write(ctx, Place{}, make([]byte, 1<<16), 0)
		cancel()
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the writer: %v", err)
	}
	if err := a.ended(t); !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "earlier write") {
		t.Errorf("its link: %v", err)
	}
	a.Close()
	if err := b.ended(t); err == nil {
		t.Error("the peer's link goes on")
	}
}

// testClosed: the peer gets the writes before the end and is informed of the end; both ends can be closed twice.
func testClosed(t *testing.T, w way) {
	a, b := linked(t, w, 1, 4096)
	a.write(t, Place{}, []byte("last"), 9)
	for range 2 {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
	if c, more := b.next(t); !more || string(b.received(t, c)) != "last" {
		t.Errorf("%+v, %t", c, more)
	}
	if err := b.ended(t); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("the peer: %v", err)
	}
	if err := a.Write(t.Context(), Place{}, nil, 0); !errors.Is(err, ErrClosed) || !errors.Is(a.Err(), ErrClosed) {
		t.Errorf("a write after Close: %v", err)
	}
}

// testReconnect: the next link uses the memory of a link that has ended.
func testReconnect(t *testing.T, w way) {
	own, theirs := segment(t, 4096, 1), segment(t, 4096, 1)
	for n := range byte(3) {
		here, there := connections(t, w)
		a, b := &end{own: own}, &end{own: theirs}
		var work sync.WaitGroup
		for e, conn := range map[*end]net.Conn{a: here, b: there} {
			work.Go(func() {
				var err error
				if e.Link, err = w.provider.Connect(t.Context(), conn, registered(t, w, e.own)); err != nil {
					t.Error(err)
				}
			})
		}
		if work.Wait(); t.Failed() {
			return
		}
		a.write(t, Place{}, []byte{n}, uint32(n))
		if c, _ := b.next(t); c.Immediate != uint32(n) || b.received(t, c)[0] != n {
			t.Errorf("connection %d: %+v", n, c)
		}
		a.Close()
		b.Close()
	}
}

// testHostile: records without a valid place end the link, and nothing is written.
func testHostile(t *testing.T, w way) {
	for _, c := range []Completion{
		{Place: Place{Slot: 1}}, {Place: Place{Slot: -1}}, {Size: 4097}, {
			Place: Place{Offset: -1},
			Size:  1,
		}, {Place: Place{Offset: 1 << 62}, Size: 1 << 62}, {Size: -1},
	} {
		a, b := linked(t, w, 1, 4096)
		forge(t, a.Link.(*link).carrier, c)
		if err := b.ended(t); err == nil || !strings.Contains(err.Error(), "it sent a message about a write of") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// forge sends a record without a check.
func forge(t *testing.T, to carrier, c Completion) {
	t.Helper()
	var err error
	switch to := to.(type) {
	case *shared:
		_, err = to.conn.Write(c.append(nil))
	case *stream:
		_, err = to.conn.Write(c.append(nil))
	case *remote:
		to.mu.Lock()
		defer to.mu.Unlock()
		message := c.append(to.memory.slots[:0])[:recordRoom]
		err = to.post(to.from(message, verbs.Write{Remote: to.peer.ring.address, RemoteKey: to.peer.ring.key, Notify: true}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// testHandshake: a peer that sends nothing, or something else than a greeting, is refused.
func testHandshake(t *testing.T, w way) {
	own := segment(t, 4096, 1)
	here, there := connections(t, w)
	defer there.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if l, err := w.provider.Connect(ctx, here, registered(t, w, own)); err == nil {
		l.Close()
		t.Error("a peer that says nothing was accepted")
	}
	zeros := strings.Repeat("\x00", greetingSize)
	for _, words := range []string{
		"", "GET / HTTP/1.1\r\n\r\n" + zeros, "tfw\x01" + zeros, "tfw\x02" + zeros, "tfw\x02" +
			strings.Repeat("\xff", greetingSize), "tfv\x01" + zeros,
	} {
		here, there := connections(t, w)
		_, _ = there.Write([]byte(words))
		if words == "" {
			there.Close()
		}
		if l, err := w.provider.Connect(t.Context(), here, registered(t, w, own)); err == nil {
			l.Close()
			t.Errorf("a peer that says %q was accepted", words)
		}
		there.Close()
	}
}

// testKilled: the death of a peer in the middle of a write ends the link.
func testKilled(t *testing.T, w way) {
	if w.name == "RDMA stub" {
		t.Skip("the stub has no way between processes: make test-rdma has")
	}
	ln := w.listen(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestPeerProcess$")
	cmd.Env = append(os.Environ(), "TRANSPORT_TEST="+w.name+"="+ln.Addr().Network()+"="+
		ln.Addr().String(), identityVariable+"="+w.identity)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	own := segment(t, 64<<20, 1)
	l, err := w.provider.Connect(t.Context(), conn, registered(t, w, own))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := &end{l, own}
	for range 3 {
		if _, more := e.next(t); !more {
			t.Fatal(e.Err())
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := e.ended(t); err == nil {
		t.Error("the link goes on")
	}
	if err := l.Write(t.Context(), Place{}, []byte{1}, 0); err == nil {
		t.Error("a write to a peer that was killed succeeded")
	}
}

// TestPeerProcess is the process that testKilled kills.
func TestPeerProcess(t *testing.T) {
	name, where, ok := strings.Cut(os.Getenv("TRANSPORT_TEST"), "=")
	if !ok {
		t.Skip("TestConformance runs it as a process of its own")
	}
	var to address
	to.network, to.text, _ = strings.Cut(where, "=")
	for _, w := range ways(t) {
		if w.name != name {
			continue
		}
		conn, err := w.dial(to)
		if err != nil {
			t.Fatal(err)
		}
		l, err := w.provider.Connect(t.Context(), conn, registered(t, w, segment(t, 4096, 1)))
		if err != nil {
			t.Fatal(err)
		}
		for {
			if err := l.Write(t.Context(), Place{}, make([]byte, 64<<20), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// address is the address on which the test that has started this process listens.
type address struct{ network, text string }

func (a address) Network() string { return a.network }
func (a address) String() string  { return a.text }

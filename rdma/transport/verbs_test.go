//go:build (cgo || verbs) && (amd64 || arm64)

package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/rdma/verbs"
	"github.com/tfcluster/tfcluster/rdma/verbs/verbstest"
)

// stubbed returns the stub, and settings that use it.
func stubbed(t testing.TB) (*verbstest.Stub, VerbsSettings) {
	t.Helper()
	stub := verbstest.New(t)
	settings := DefaultVerbs("stub_0", 1, 1)
	settings.Library = stub.Path
	return stub, settings
}

// TestRefused: the reason why there is no RDMA is one line.
func TestRefused(t *testing.T) {
	stub, settings := stubbed(t)
	with := func(change func(*VerbsSettings)) VerbsSettings {
		s := settings
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		settings VerbsSettings
		prepare  func()
		want     string
	}{
		"no library": {
			with(func(s *VerbsSettings) { s.Library = "libibverbs-of-nobody.so.1" }), func() {},
			"open libibverbs-of-nobody.so.1: ",
		},
		"no device":  {settings, func() { stub.Devices(0) }, "there is no RDMA device stub_0"},
		"short list": {settings, func() { stub.Devices(-1) }, "there is no RDMA device stub_0"},
		"another":    {with(func(s *VerbsSettings) { s.Device = "mlx5_0" }), func() {}, "there is no RDMA device mlx5_0"},
		"no port":    {with(func(s *VerbsSettings) { s.Port = 2 }), func() {}, "query port 2 of stub_0: invalid argument"},
		"no GID":     {with(func(s *VerbsSettings) { s.GID = 2 }), func() {}, "GID 2 of port 1 of stub_0 is empty"},
		"port down":  {settings, func() { stub.PortDown(true) }, "port 1 of stub_0 is not active"},
		"permission": {settings, func() {
			stub.Fail("ibv_open_device", unix.EACCES)
		}, "open /dev/infiniband/uverbs0 of stub_0: permission denied"},
		"iWARP": {settings, stub.IWARP, "stub_0 has iWARP, which lacks an operation"},
		"domain": {settings, func() {
			stub.Fail("ibv_alloc_pd", unix.ENOMEM)
		}, "make a protection domain of the RDMA device stub_0: cannot allocate memory"},
	} {
		stub.Devices(1)
		stub.Fail("", 0)
		stub.PortDown(false)
		c.prepare()
		v, err := OpenVerbs(c.settings)
		if err == nil {
			t.Errorf("%s: opened", name)
			v.Close()
			continue
		}
		if !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLocked: the error of memory that cannot be locked has the limit.
func TestLocked(t *testing.T) {
	stub, settings := stubbed(t)
	v := openVerbs(t, settings)
	stub.Fail("ibv_reg_mr", unix.ENOMEM)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 64 << 10, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	region, err := v.Register(segment(t, 1<<20, 1))
	if err == nil {
		region.Close()
		t.Fatal("the memory was registered")
	}
	want := "register 1048576 bytes with stub_0: cannot allocate memory: this process may lock 64 kB of memory: " +
		"raise ulimit -l of the executors"
	if err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestFallsBack: if one end cannot use RDMA, both ends have a stream and the reason.
func TestFallsBack(t *testing.T) {
	stub, settings := stubbed(t)
	v := openVerbs(t, settings)
	for name, c := range map[string]struct {
		there Provider
		fails string
		want  string
	}{
		"peer without RDMA": {TCP{}, "", "TCP: the peer has none: a line of that task or status --fabric says why"},
		"no queue pair": {
			v, "ibv_create_qp", "TCP: make a queue pair of the RDMA device stub_0: cannot allocate memory",
		},
		"no memory for them": {v, "ibv_reg_mr", "TCP: register 8192 bytes with stub_0: cannot allocate memory"},
		"no connection":      {v, "rtr", "TCP: connect to the queue pair of 127.0.0.1 (RTR): cannot allocate memory"},
		"nothing is wrong":   {v, "", "RDMA by stub_0 port 1, GID 1 (127.0.0.1)"},
	} {
		a, b := connected(t.Context(), t, v, c.there, func() { stub.Fail(c.fails, unix.ENOMEM) })
		stub.Fail("", 0)
		got, without := Via(a.Link)
		if without != nil {
			got += ": " + without.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s", name, got)
		}
		a.write(t, Place{}, []byte("it goes on"), 1)
		if c, _ := b.next(t); string(b.received(t, c)) != "it goes on" {
			t.Errorf("%s: %+v", name, c)
		}
		a.Close()
		b.Close()
	}
}

// TestUnreachable: if the devices cannot reach each other but the stream can, both ends have a stream and the reason.
func TestUnreachable(t *testing.T) {
	stub, settings := stubbed(t)
	v := openVerbs(t, settings)
	for name, c := range map[string]struct {
		prepare func()
		want    string // a regular expression
	}{
		"refused": {
			func() { stub.FailNext(uint32(verbs.RetriesExceeded)) },
			"^the peer's device does not answer: transport retry counter exceeded: .*$|^the peer's writes by RDMA do not " +
				"arrive here: .*$",
		},
		"silent": {
			func() { stub.Stall(true) },
			"^the peer's device has not acknowledged a write within [1-3]s$|^the peer's writes by RDMA do not arrive here: .*$",
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer stub.Stall(false)
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second) // half of it is for the first write
			defer cancel()
			a, b := connected(ctx, t, v, v, c.prepare)
			for _, e := range []*end{a, b} {
				if way, why := Via(e.Link); way != "TCP" || why == nil || !regexp.MustCompile(c.want).MatchString(why.Error()) {
					t.Errorf("%s: %v", way, why)
				}
			}
			a.write(t, Place{}, []byte("it goes on"), 1)
			if c, _ := b.next(t); string(b.received(t, c)) != "it goes on" {
				t.Errorf("%+v", c)
			}
		})
	}
}

// connected returns the two ends of a link of two providers. It calls prepare when both have registered their memory.
func connected(ctx context.Context, t testing.TB, here, there Provider, prepare func()) (a, b *end) {
	t.Helper()
	ends := []*end{{own: segment(t, 1<<20, 1)}, {own: segment(t, 1<<20, 1)}}
	providers := []Provider{here, there}
	var regions []*Region
	for i, p := range providers {
		regions = append(regions, registered(t, way{provider: p}, ends[i].own))
	}
	ln := listenTCP(t)
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	prepare()
	var work sync.WaitGroup
	for i, conn := range []net.Conn{dialled, accepted} {
		work.Go(func() {
			var err error
			if ends[i].Link, err = providers[i].Connect(ctx, conn, regions[i]); err != nil {
				t.Error(err)
			}
		})
	}
	if work.Wait(); t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { ends[0].Close(); ends[1].Close() })
	return ends[0], ends[1]
}

// TestFails: a write that a device refuses ends the link, and the peer's link, with its reason.
func TestFails(t *testing.T) {
	stub, settings := stubbed(t)
	for name, c := range map[string]struct {
		happens func(a, b *end)
		want    string // a regular expression
	}{
		"key": {
			func(_, b *end) { b.Link.(*link).carrier.(*remote).own.device.Close() },
			"the peer's RDMA device refuses access to its memory, which the peer has freed or never gave: remote access error",
		},
		"retries": {func(*end, *end) {
			stub.FailNext(uint32(verbs.RetriesExceeded))
		}, "the peer's device does not answer: transport retry counter exceeded"},
		"rejected": {
			func(*end, *end) { stub.Fail("ibv_post_send", unix.ENOMEM) }, "post a write to stub_0: cannot allocate memory",
		},
		"poll": {func(*end, *end) {
			stub.Fail("ibv_poll_cq", unix.EIO)
		}, "poll the completion queue of the RDMA device stub_0: libibverbs returns -1|the peer's device does not answer"},
		"killed": {func(a, b *end) {
			stub.Stall(true)
			time.AfterFunc(20*time.Millisecond, func() { b.Link.(*link).carrier.(*remote).conn.Close() })
		}, "the connection was closed, by the end of the peer"},
	} {
		for _, data := range [][]byte{[]byte("small"), make([]byte, 1<<20)} {
			t.Run(name, func(t *testing.T) {
				defer stub.Stall(false)
				if name == "key" && len(data) <= smallSize {
					t.Skip("small data is put at its place by the peer's process")
				}
				v := openVerbs(t, settings)
				a, b := connected(t.Context(), t, v, v, func() {})
				c.happens(a, b)
				err := a.Write(t.Context(), Place{}, data, 0)
				for ; err == nil; err = a.Write(t.Context(), Place{}, data, 0) { // a small write does not wait
				}
				if want := regexp.MustCompile(c.want); !want.MatchString(err.Error()) || !want.MatchString(a.ended(t).Error()) {
					t.Errorf("the writer: %v; its link: %v", err, a.Err())
				}
				stub.Fail("", 0)
				a.Close()
				if err := b.ended(t); errors.Is(err, ErrPeerClosed) {
					t.Errorf("the peer: %v", err)
				}
			})
		}
	}
}

// TestSplit: three devices carry the same data: one with small messages, one that does not report their maximum size,
// and one without inline writes.
func TestSplit(t *testing.T) {
	stub, settings := stubbed(t)
	for name, prepare := range map[string]func(){
		"small messages": func() { stub.MaxMessage(5000) }, "no limit": func() { stub.MaxMessage(0) },
		"no inline writes": func() { stub.Fail("inline", syscall.EINVAL) },
	} {
		prepare()
		v := openVerbs(t, settings)
		a, b := connected(t.Context(), t, v, v, func() {})
		for _, size := range []int{0, 1, 96, 97, 4095, 4096, 5001, 1 << 20} {
			data := bytes.Repeat([]byte{byte(size), 2, 3}, size/3+1)[:size]
			a.write(t, Place{}, data, 1)
			if c, _ := b.next(t); !bytes.Equal(b.received(t, c), data) {
				t.Errorf("%s: %d bytes arrive as others", name, size)
			}
			err := a.own.Use(func(slots [][]byte) error { // from memory that the device knows
				copy(slots[0], data)
				return a.Write(t.Context(), Place{}, slots[0][:size], 2)
			})
			if c, _ := b.next(t); err != nil || !bytes.Equal(b.received(t, c), data) {
				t.Errorf("%s: %d bytes of the own memory arrive as others, %v", name, size, err)
			}
		}
	}
}

// TestLimitAfterwards: the time limit of a wait that is over does not touch the queue, which may have been closed.
func TestLimitAfterwards(t *testing.T) {
	r := &remote{} // without a queue: a use of it panics
	r.changed = sync.NewCond(&r.mu)
	for range 100 {
		r.mu.Lock()
		r.awaitFor(time.Nanosecond, func() bool { time.Sleep(50 * time.Microsecond); return true })
		r.mu.Unlock()
	}
}

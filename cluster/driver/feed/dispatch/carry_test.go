package dispatch

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/agent/feed"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/memory"
)

// line is a message on the holder's socket.
type line struct {
	Op, Reason              string
	Feed                    int64
	Slot, Epoch, Slots      int
	Begin, End, Bytes, Skip int64
}

// socketPeer is a program at a real holder.
type socketPeer struct {
	t     *testing.T
	conn  *net.UnixConn
	lines *bufio.Reader
	file  *os.File
}

func dial(t *testing.T, path string) *socketPeer {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	p := &socketPeer{t: t, conn: conn}
	p.lines = bufio.NewReader(p)
	return p
}

// Read implements io.Reader; it keeps the descriptor that comes with the data.
func (p *socketPeer) Read(buffer []byte) (int, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(longest))
	n, files, err := memory.Receive(p.conn, buffer)
	for _, f := range files {
		p.file = f
	}
	if err == nil && n == 0 {
		err = net.ErrClosed
	}
	return n, err
}

func (p *socketPeer) close() {
	p.conn.Close()
	if p.file != nil {
		p.file.Close()
	}
}

func (p *socketPeer) say(format string, args ...any) { fmt.Fprintf(p.conn, format+"\n", args...) }

func (p *socketPeer) hear() line { return hear(p.t, p.lines) }

func hear(t *testing.T, lines *bufio.Reader) line {
	text, err := lines.ReadBytes('\n')
	var l line
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		t.Errorf("a peer of a holder: %v", err)
		l.Op = "over"
	}
	return l
}

const slotSize = 4096 // of the tasks' memory

// read reads the feed as a program does, and returns its records.
func (p *socketPeer) read(even bool) (records []uint64) {
	used := 0
	for {
		switch m := p.hear(); m.Op {
		case "feed":
			p.say(`{"op":"read","feed":%d,"even":%t,"batch":2}`, m.Feed, even)
		case "batch":
			data := make([]byte, m.Bytes)
			if _, err := p.file.ReadAt(data, int64(m.Slot)*slotSize); err != nil {
				p.t.Error(err)
			}
			for r := m.Begin; r < m.End; r++ {
				records = append(records, binary.LittleEndian.Uint64(data[8*r:]))
			}
			used += int(m.End - m.Begin)
			p.say(`{"op":"used","feed":%d,"epoch":0,"rows":%d}`, m.Feed, used)
			p.say(`{"op":"free","slot":%d,"rows":%d}`, m.Slot, m.End-m.Begin)
		case "over":
			if m.Reason != "" {
				p.t.Errorf("the feed failed: %s", m.Reason)
			}
			return records
		}
		p.say(`{"op":"next"}`)
	}
}

// remote opens a holder with a connected program, and hides the holder's socket from producers.
func (b *bed) remote(folder, task string) *socketPeer {
	b.t.Helper()
	path := filepath.Join(folder, task)
	in, err := feed.Open(b.t.Context(), feed.Config{
		Run: 1, Task: task, Host: "another", Socket: path, Memory: 8 * slotSize, Client: clusterpb.NewFeedsClient(b.conn),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(in.Close)
	_, key := in.Socket()
	p := dial(b.t, path)
	b.t.Cleanup(p.close)
	p.say(`{"op":"consume","key":%q}`, key)
	if m := p.hear(); m.Op != "segment" {
		b.t.Fatalf("the program heard %+v", m)
	}
	if err := os.Rename(path, path+".hidden"); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// producer is a producer on another host.
type producer struct {
	t     *testing.T
	conn  net.Conn
	lines *bufio.Reader
}

// producer connects a producer as the driver's port for agents does.
func (b *bed) producer(feed string) *producer {
	b.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	defer ln.Close()
	conn, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { conn.Close() })
	theirs, err := ln.Accept()
	if err != nil {
		b.t.Fatal(err)
	}
	b.d.Produce(theirs, feed)
	_ = conn.SetDeadline(time.Now().Add(longest))
	return &producer{b.t, conn, bufio.NewReader(conn)}
}

func (p *producer) say(format string, args ...any) { fmt.Fprintf(p.conn, format+"\n", args...) }

// leased asks for the lease of a partition and returns it.
func (p *producer) leased(o *clusterpb.FeedOpen, partition int) line {
	p.say(`{"op":"produce","feed":%d,"key":%q,"epoch":0,"partition":%d,"attempt":1,"digest":"d"}`, o.GetFeed(),
		o.GetKey(), partition)
	lease := hear(p.t, p.lines)
	if lease.Op != "lease" {
		p.t.Errorf("a producer heard %+v", lease)
	}
	return lease
}

// put delivers records [begin, end).
func (p *producer) put(begin, end uint64) {
	for begin < end {
		p.say(`{"op":"slot"}`)
		slot := hear(p.t, p.lines)
		var data []byte
		for ; begin < end && len(data) < 800; begin++ {
			data = binary.LittleEndian.AppendUint64(data, begin)
		}
		p.say(`{"op":"put","slot":%d,"bytes":%d,"rows":%d}`, slot.Slot, len(data), len(data)/8)
		if _, err := p.conn.Write(data); err != nil {
			p.t.Error(err)
		}
	}
}

// TestCarry: producers on hosts without an executor deliver through the driver. Each record reaches one program, also
// when a producer is lost and made again, and programs that read evenly have the same number of records.
func TestCarry(t *testing.T) {
	t.Parallel()
	for _, even := range []bool{false, true} {
		t.Run(fmt.Sprintf("even %t", even), func(t *testing.T) {
			t.Parallel()
			const partitions, each = 7, 1430
			b := newBed(t, "worker:0", "worker:1")
			folder := shortFolder(t)
			programs := []*socketPeer{b.remote(folder, "worker:0"), b.remote(folder, "worker:1")}
			c := b.feeds(&clusterpb.FeedRequest{Uneven: "drop", Epochs: 1})
			o := c.opened()
			var reading, producing sync.WaitGroup
			got := make([][]uint64, len(programs))
			for i, p := range programs {
				reading.Go(func() { got[i] = p.read(even) })
			}
			for partition := range partitions {
				producing.Go(func() {
					begin, end := uint64(partition*each), uint64(partition*each+each)
					if partition%2 == 0 { // an attempt that ends in the middle of a batch
						p := b.producer(o.GetRoute().GetCertificate())
						p.leased(o, partition)
						p.put(begin, begin+500)
						p.say(`{"op":"slot"}`)
						p.say(`{"op":"put","slot":%d,"bytes":800,"rows":100}`, hear(t, p.lines).Slot)
						fmt.Fprint(p.conn, "half")
						p.conn.Close()
					}
					p := b.producer(o.GetRoute().GetCertificate())
					skip := uint64(p.leased(o, partition).Skip)
					if partition%2 == 0 && skip != 500 {
						t.Errorf("%d records were delivered before", skip)
					}
					p.put(begin+skip, end)
					p.say(`{"op":"done"}`)
					if m := hear(t, p.lines); m.Op != "done" {
						t.Errorf("a producer heard %+v", m)
					}
				})
			}
			producing.Wait()
			c.fed(partitions * each)
			c.reads(partitions * each)
			b.runs.end("run 1 has ended: it finished")
			if u := c.over(); u.GetFailure() != nil || u.GetProgress().GetFed() != partitions*each {
				t.Errorf("%v", u)
			}
			reading.Wait()
			seen := map[uint64]int{}
			for _, records := range got {
				for _, r := range records {
					seen[r]++
				}
			}
			if len(seen) != partitions*each || len(got[0])+len(got[1]) != partitions*each {
				t.Errorf("%d of %d records, %d and %d times", len(seen), partitions*each, len(got[0]), len(got[1]))
			}
			if len(got[0]) == 0 || len(got[1]) == 0 || even && len(got[0]) != len(got[1]) {
				t.Errorf("the programs have %d and %d records", len(got[0]), len(got[1]))
			}
		})
	}
}

// shortFolder returns a folder for sockets.
func shortFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "carry")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// TestCarryRefused: a certificate is for one feed. A connection that waits for a holder ends with the feed, and every
// producer receives the reason.
func TestCarryRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, "worker:0")
	folder := shortFolder(t)
	b.remote(folder, "worker:0")
	refused := func(what, feed, want string) {
		t.Helper()
		if m := hear(t, b.producer(feed).lines); m.Op != "stop" || !strings.Contains(m.Reason, want) {
			t.Errorf("%s heard %+v", what, m)
		}
	}
	refused("one without a feed", "feed-1", "this feed is over")
	c := b.feeds(&clusterpb.FeedRequest{Epochs: 1})
	o := c.opened()
	refused("one of another feed", "feed-1", "this feed is over")
	p := b.producer(o.GetRoute().GetCertificate())
	p.say(`{"op":"produce","feed":%d,"key":"guessed"}`, o.GetFeed())
	if m := hear(t, p.lines); m.Op != "stop" {
		t.Errorf("one with another key heard %+v", m)
	}
	p = b.producer(o.GetRoute().GetCertificate())
	p.leased(o, 0)
	c.end()
	if m := hear(t, p.lines); m.Op != "stop" {
		t.Errorf("a producer of a feed that has ended heard %+v", m)
	}
	m := hear(t, b.producer(o.GetRoute().GetCertificate()).lines)
	forgotten := m.Reason == "this feed is over" // its holders are informed of its end before that
	if m.Op != "stop" || !forgotten && m.Reason != "the client that read the source has ended" {
		t.Errorf("one of a feed that has ended heard %+v", m)
	}
	b.noneWaits()
}

// noneWaits checks that no connection waits for a holder.
func (b *bed) noneWaits() {
	b.t.Helper()
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if len(b.d.waiting) != 0 {
		b.t.Errorf("%d connections wait", len(b.d.waiting))
	}
}

// TestCarryOver: a feed that is over continues for its client until the run ends. A producer that connects in this
// time receives at once the reason that the others received.
func TestCarryOver(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		mode, want string
		ends       func(c *fakeClient, h *fakeHolder, feed int64)
	}{
		"a program leaves": {
			"inference", "worker:0 reads no more: inference needs a result for every record",
			func(_ *fakeClient, h *fakeHolder, feed int64) {
				h.say(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Left{Left: &clusterpb.HolderLeft{Feed: feed}}})
			},
		},
		"everything was delivered": {"train", "", func(c *fakeClient, h *fakeHolder, feed int64) {
			h.delivers(feed, 10)
			c.fed(10)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "worker:0", "worker:1")
			hs := []*fakeHolder{b.attend("worker:0"), b.attend("worker:1")}
			c := b.feeds(&clusterpb.FeedRequest{Mode: test.mode, Epochs: 1})
			o := c.opened()
			hs[0].began()
			hs[0].reads(o.GetFeed())
			test.ends(c, hs[0], o.GetFeed())
			if over := hs[0].over(); over.GetReason() != test.want {
				t.Fatalf("the feed is over: %v", over)
			}
			if m := hear(t, b.producer(o.GetRoute().GetCertificate()).lines); m.Op != "stop" || m.Reason != test.want {
				t.Errorf("a producer heard %+v", m)
			}
			b.noneWaits()
		})
	}
}

package feed

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/memory"
)

// peerConn is a producer or a program.
type peerConn struct {
	t       testing.TB
	conn    *net.UnixConn
	pending []byte
	line    []byte // heard last
	files   []*os.File
}

func (b *bed) dial() *peerConn {
	b.t.Helper()
	path, _ := b.in.Socket()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		b.t.Fatal(err)
	}
	p := &peerConn{t: b.t, conn: conn}
	b.t.Cleanup(p.close)
	return p
}

func (p *peerConn) close() {
	p.conn.Close()
	for _, f := range p.files {
		f.Close()
	}
	p.files = nil
}

// say sends a line.
func (p *peerConn) say(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.conn, format+"\n", args...); err != nil {
		p.t.Fatal(err)
	}
}

// next returns the next message, or an error if none comes in time.
func (p *peerConn) next(within time.Duration) (message, error) {
	_ = p.conn.SetReadDeadline(time.Now().Add(within))
	for {
		if at := bytes.IndexByte(p.pending, '\n'); at >= 0 {
			var m message
			p.line = bytes.Clone(p.pending[:at])
			err := json.Unmarshal(p.line, &m)
			p.pending = p.pending[at+1:]
			return m, err
		}
		buffer := make([]byte, 4096)
		n, files, err := memory.Receive(p.conn, buffer)
		if err == nil && n == 0 {
			err = net.ErrClosed
		}
		if err != nil {
			return message{}, err
		}
		p.pending, p.files = append(p.pending, buffer[:n]...), append(p.files, files...)
	}
}

// hear returns the next message, which must have this op.
func (p *peerConn) hear(op string) message {
	p.t.Helper()
	m, err := p.next(patience)
	if err != nil || m.Op != op {
		p.t.Fatalf("heard %+v instead of %s: %v", m, op, err)
	}
	return m
}

// lease returns the lease that was heard last.
func (p *peerConn) lease() *clusterpb.FeedLease {
	p.t.Helper()
	l := &clusterpb.FeedLease{}
	if err := json.Unmarshal(p.line, l); err != nil {
		p.t.Fatal(err)
	}
	return l
}

// quiet checks that no message arrives for some time.
func (p *peerConn) quiet() {
	p.t.Helper()
	if m, err := p.next(100 * time.Millisecond); err == nil {
		p.t.Fatalf("heard %+v", m)
	}
}

// over waits until the holder has ended the connection.
func (p *peerConn) over() {
	p.t.Helper()
	for {
		if _, err := p.next(patience); err != nil {
			if os.IsTimeout(err) {
				p.t.Fatal("the holder keeps the connection")
			}
			return
		}
	}
}

// producer connects a producer and gets its lease.
func (b *bed) producer(skip int64) *peerConn {
	b.t.Helper()
	p := b.dial()
	p.say(`{"op":"produce","feed":1,"key":"secret","epoch":0,"partition":2,"attempt":3,"digest":"d"}`)
	w := await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
	if w.GetFeed() != 1 || w.GetPartition() != 2 || w.GetAttempt() != 3 || w.GetDigest() != "d" {
		b.t.Errorf("the driver was asked for %v", w)
	}
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{Feed: 1, Producer: w.GetProducer(), Skip: skip}},
	})
	m := p.hear("lease")
	if l := p.lease(); l.GetSkip() != skip || m.Slots != slots || m.Size != slots*pageSize || len(p.files) != 1 {
		b.t.Fatalf("lease %+v with %d descriptors", m, len(p.files))
	}
	return p
}

// producerOf connects a producer of another feed and gets its lease.
func (b *bed) producerOf(feed int64, key string) *peerConn {
	b.t.Helper()
	p := b.dial()
	p.say(`{"op":"produce","feed":%d,"key":%q}`, feed, key)
	w := await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{Feed: feed, Producer: w.GetProducer()}},
	})
	p.hear("lease")
	return p
}

// put asks for a slot and writes a batch of one byte per record into it.
func (p *peerConn) put(data string) {
	p.t.Helper()
	p.say(`{"op":"slot"}`)
	p.fill(p.hear("slot").Slot, data)
}

func (p *peerConn) fill(slot int, data string) {
	p.t.Helper()
	if _, err := p.files[0].WriteAt([]byte(data), int64(slot)*pageSize); err != nil {
		p.t.Fatal(err)
	}
	p.say(`{"op":"put","slot":%d,"bytes":%d,"rows":%d}`, slot, len(data), len(data))
}

// program connects the task's program, which begins to read feed 1.
func (b *bed) program(even bool) *peerConn {
	b.t.Helper()
	p := b.dial()
	p.say(`{"op":"consume","key":%q}`, b.key)
	p.hear("segment")
	if m := p.hear("feed"); m.Feed != 1 || string(m.Plan) != `{"mode":"train"}` {
		b.t.Fatalf("feed %+v", m)
	}
	p.say(`{"op":"read","feed":1,"even":%t,"batch":2}`, even)
	if r := await(b, (*clusterpb.HolderMessage).GetReading); r.GetEven() != even {
		b.t.Fatalf("the driver received %v", r)
	}
	return p
}

// batch returns the next records for the program, and their slot.
func (p *peerConn) batch() (string, int) {
	p.t.Helper()
	p.say(`{"op":"next"}`)
	return p.handed()
}

func (p *peerConn) handed() (string, int) {
	p.t.Helper()
	m := p.hear("batch")
	data := make([]byte, m.Bytes)
	if _, err := p.files[0].ReadAt(data, int64(m.Slot)*pageSize); err != nil {
		p.t.Fatal(err)
	}
	return string(data[m.Begin:m.End]), m.Slot
}

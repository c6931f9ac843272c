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
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/feed/intake"
	"github.com/tfcluster/tfcluster/rdma/memory"
)

// line is a message of the holder's socket.
type line struct {
	Op, Reason              string
	Feed                    int64
	Slot, Epoch, Slots      int
	Begin, End, Bytes, Size int64
}

// socketPeer is a producer or a program at a real holder.
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

func (p *socketPeer) hear() line {
	text, err := p.lines.ReadBytes('\n')
	var l line
	if err == nil {
		err = json.Unmarshal(text, &l)
	}
	if err != nil {
		p.t.Errorf("a peer of a holder: %v", err)
		l.Op = "over"
	}
	return l
}

const slotSize = 4096 // of the tasks' memory

// read reads the feed as a program does and returns its records.
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

// produce delivers records [begin, end) as a partition.
func (p *socketPeer) produce(o *clusterpb.FeedOpen, partition int, begin, end uint64) {
	p.say(`{"op":"produce","feed":%d,"key":%q,"epoch":0,"partition":%d,"attempt":1,"digest":"d"}`, o.GetFeed(), o.GetKey(), partition)
	lease := p.hear()
	if lease.Op != "lease" {
		p.t.Errorf("a producer heard %+v", lease)
		return
	}
	for begin < end {
		p.say(`{"op":"slot"}`)
		slot := p.hear().Slot
		var data []byte
		for ; begin < end && len(data) < 800; begin++ {
			data = binary.LittleEndian.AppendUint64(data, begin)
		}
		if _, err := p.file.WriteAt(data, int64(slot)*(lease.Size/int64(lease.Slots))); err != nil {
			p.t.Error(err)
		}
		p.say(`{"op":"put","slot":%d,"bytes":%d,"rows":%d}`, slot, len(data), len(data)/8)
	}
	p.say(`{"op":"done"}`)
	p.hear()
}

// remote opens a holder whose program has connected, and whose socket cannot be found any more.
func (b *bed) remote(folder, task string) *socketPeer {
	b.t.Helper()
	path := filepath.Join(folder, task)
	in, err := intake.Open(b.t.Context(), intake.Config{
		Run: 1, Task: task, Host: "another", Socket: path, Memory: 8 * slotSize, Client: clusterpb.NewFeedsClient(b.conn), Log: slog.New(slog.DiscardHandler),
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

// TestRelay: without an executor on their host producers deliver to the driver's relay; each record reaches one
// program, and programs that read evenly have equally many.
func TestRelay(t *testing.T) {
	t.Parallel()
	for _, even := range []bool{false, true} {
		t.Run(fmt.Sprintf("even %t", even), func(t *testing.T) {
			t.Parallel()
			const partitions, each = 7, 1430
			folder, err := os.MkdirTemp("/tmp", "relay")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(folder) })
			b := newBed(t, "worker:0", "worker:1")
			b.d.RelayIn(folder)
			programs := []*socketPeer{b.remote(folder, "worker:0"), b.remote(folder, "worker:1")}
			c := b.feeds(&clusterpb.FeedRequest{Uneven: "drop", Epochs: 1})
			o := c.opened()
			relay := o.GetHolders()[len(o.GetHolders())-1]
			if info, err := os.Stat(relay.GetSocket()); len(o.GetHolders()) != 3 || relay.GetTask() != "" || err != nil || info.Mode().Perm() != 0o600 {
				t.Fatalf("holders: %v; %v", o.GetHolders(), err)
			}
			var reading, producing sync.WaitGroup
			got := make([][]uint64, len(programs))
			for i, p := range programs {
				reading.Go(func() { got[i] = p.read(even) })
			}
			for partition := range partitions {
				producing.Go(func() {
					p := dial(t, relay.GetSocket())
					defer p.close()
					p.produce(o, partition, uint64(partition*each), uint64(partition*each+each))
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
			for deadline := time.Now().Add(longest); ; time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(relay.GetSocket()); os.IsNotExist(err) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the relay's socket is left")
				}
			}
		})
	}
}

// TestRelayEnds: a relay is there for one feed, and only where a holder's socket cannot be found.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	folder, err := os.MkdirTemp("/tmp", "relay")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	b := newBed(t, "worker:0")
	b.d.RelayIn(folder)
	h := b.attend("worker:0")
	c := b.feeds(&clusterpb.FeedRequest{})
	socket := c.opened().GetHolders()[1].GetSocket()
	p := dial(t, socket)
	defer p.close()
	begin := h.began()
	p.say(`{"op":"produce","feed":%d,"key":%q}`, begin.GetFeed(), begin.GetKey())
	if m := p.hear(); m.Op != "lease" {
		t.Errorf("a producer heard %+v", m)
	}
	c.end()
	if m := p.hear(); m.Op != "stop" {
		t.Errorf("a producer heard %+v", m)
	}
	b = newBed(t, "worker:0") // on this host
	b.d.RelayIn(folder)
	here := filepath.Join(folder, "here")
	in, err := intake.Open(t.Context(), intake.Config{Run: 1, Task: "worker:0", Socket: here, Client: clusterpb.NewFeedsClient(b.conn), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if o := b.feeds(&clusterpb.FeedRequest{}).opened(); len(o.GetHolders()) != 1 || o.GetHolders()[0].GetSocket() != here {
		t.Errorf("%v", o)
	}
}

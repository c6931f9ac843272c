package feed

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// noDriver sends no orders; tests give them to the holder directly.
type noDriver struct{ clusterpb.FeedsClient }

func (noDriver) Attend(ctx context.Context,
	_ ...grpc.CallOption,
) (grpc.BidiStreamingClient[clusterpb.HolderMessage, clusterpb.HolderOrder], error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// client is one end of the socket.
type client struct {
	t     *testing.T
	conn  net.Conn
	lines lineReader
}

func dial(t *testing.T, in *Holder, hello message) *client {
	path, _ := in.Socket()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &client{t: t, conn: conn, lines: newLineReader(conn)}
	c.send(hello)
	return c
}

func (c *client) send(m message) {
	line, err := json.Marshal(m)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err != nil {
		c.t.Error(err)
	}
}

// expect reads the next message, which must have this op.
func (c *client) expect(op string) message {
	c.t.Helper()
	_ = c.conn.SetReadDeadline(time.Now().Add(patience))
	m, err := c.lines.read()
	if err != nil || m.Op != op {
		c.t.Fatalf("%+v, %v came, %s was expected", m, err, op)
	}
	return m
}

// order gives the holder an order of the driver.
func order(in *Holder, o *clusterpb.HolderOrder) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.obey(o)
}

// open opens a holder during inference, with its program.
func open(t *testing.T) (in *Holder, program, answers *client) {
	in, err := Open(t.Context(), Config{
		Task: "worker:1", Socket: filepath.Join(t.TempDir(), "s"), Client: noDriver{}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(in.Close)
	program = dial(t, in, message{Op: "consume", Key: in.key})
	program.expect("segment")
	answers = dial(t, in, message{Op: "answer", Key: in.key})
	answers.expect("segment")
	return in, program, answers
}

// begin begins inference.
func begin(in *Holder, program *client) {
	order(in, &clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Begin{Begin: &clusterpb.FeedBegin{Feed: 1, Key: "k", Plan: `{"mode":"inference"}`}},
	})
	program.expect("feed")
	program.send(message{Op: "read", Feed: 1})
}

// produce connects a producer and grants its lease. number is the holder's number of the producer.
func produce(t *testing.T, in *Holder, number int64) *client {
	p := dial(t, in, message{Op: "produce", Feed: 1, Key: "k"})
	for there := false; !there; time.Sleep(time.Millisecond) {
		in.mu.Lock()
		there = in.producers[number] != nil
		in.mu.Unlock()
	}
	order(in,
		&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{Feed: 1, Producer: number}}})
	p.expect("lease")
	return p
}

// put delivers a batch.
func (c *client) put(number, rows int64) {
	c.send(message{Op: "slot"})
	slot := c.expect("slot").Slot
	c.send(message{Op: "put", place: place{Slot: slot, Bytes: 1}, records: records{Rows: rows, Piece: number}})
}

// answer gives results of a piece.
func (c *client) answer(piece, begin, end int64) {
	c.send(message{Op: "slot"})
	slot := c.expect("slot").Slot
	c.send(message{
		Op: "put", Feed: 1, place: place{Slot: slot, Bytes: 1}, records: records{Piece: piece, Begin: begin, End: end},
	})
}

// TestResults: results are sent to the producer that delivered the records, with its number of the batch. If no
// records come before the program gives results, the program is informed once.
func TestResults(t *testing.T) {
	t.Parallel()
	in, program, answers := open(t)
	begin(in, program)
	a, b := produce(t, in, 1), produce(t, in, 2)
	program.send(message{Op: "next"})
	a.put(7, 10)
	first := program.expect("batch")
	program.send(message{Op: "next"})
	b.put(3, 5)
	second := program.expect("batch")
	program.send(message{Op: "next"})
	a.send(message{Op: "end"})
	b.send(message{Op: "end"})
	program.expect("flush")
	answers.answer(first.Piece, 0, 4)
	answers.answer(first.Piece, 4, 10)
	for _, want := range []records{{Piece: 7, Begin: 0, End: 4}, {Piece: 7, Begin: 4, End: 10}} {
		m := a.expect("results")
		if m.records != want {
			t.Errorf("results of %+v came, %+v were expected", m.records, want)
		}
		a.send(message{Op: "taken", place: place{Slot: m.Slot}})
	}
	program.send(message{Op: "next"}) // answered by the next batch: no second flush
	answers.answer(second.Piece, 0, 5)
	m := b.expect("results")
	if want := (records{Piece: 3, Begin: 0, End: 5}); m.records != want {
		t.Errorf("results of %+v came, %+v were expected", m.records, want)
	}
	b.send(message{Op: "done"})
	b.expect("done")
	a.put(8, 1)
	program.expect("batch")
}

// TestResultsHaveRoom: records never fill the slots that are kept for results.
func TestResultsHaveRoom(t *testing.T) {
	t.Parallel()
	in, program, answers := open(t)
	begin(in, program)
	p := produce(t, in, 1)
	for n := range int64(slots - keptForResults) {
		p.put(n, 1)
	}
	p.send(message{Op: "slot"}) // there is none
	program.send(message{Op: "next"})
	piece := program.expect("batch")
	for range keptForResults {
		answers.send(message{Op: "slot"})
		answers.expect("slot")
	}
	program.send(message{Op: "free", place: place{Slot: piece.Slot}, records: records{Rows: 1}})
	p.expect("slot")
}

// TestResultsOfNobody: after a producer has ended, its results are dropped, and so are its records that the program
// does not have; their slots are free again.
func TestResultsOfNobody(t *testing.T) {
	t.Parallel()
	in, program, answers := open(t)
	begin(in, program)
	p := produce(t, in, 1)
	p.put(0, 10)
	p.put(1, 10)
	program.send(message{Op: "next"})
	piece := program.expect("batch")
	answers.answer(piece.Piece, 0, 5)
	p.expect("results")
	_ = p.conn.Close()
	answers.answer(piece.Piece, 5, 10) // whether or not the end is known yet
	program.send(message{Op: "free", place: place{Slot: piece.Slot}, records: records{Rows: 10}})
	deadline := time.Now().Add(patience)
	for used := -1; used != 0; time.Sleep(time.Millisecond) {
		used = 0
		in.mu.Lock()
		for _, s := range in.slots {
			if s.state != empty {
				used++
			}
		}
		received := in.feed.epoch(0).held.GetReceived()
		in.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d slots are in use", used)
		}
		if used == 0 && received != 10 {
			t.Errorf("%d records count, 10 were expected: the others never reached the program", received)
		}
	}
}

// TestEarlyProducer: a producer that comes before the beginning of the feed waits for it.
func TestEarlyProducer(t *testing.T) {
	t.Parallel()
	in, program, _ := open(t)
	p := dial(t, in, message{Op: "produce", Feed: 1, Key: "k"})
	time.Sleep(20 * time.Millisecond)
	begin(in, program)
	for there := false; !there; time.Sleep(time.Millisecond) {
		in.mu.Lock()
		there = in.producers[1] != nil
		in.mu.Unlock()
	}
	order(in,
		&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{Feed: 1, Producer: 1}}})
	p.expect("lease")
	p.put(0, 1)
	program.send(message{Op: "next"})
	program.expect("batch")
}

package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// carriedConn is the driver's end of a producer's carried connection.
type carriedConn struct {
	t       testing.TB
	number  int64
	said    chan []byte // bytes of the holder; closed after the last one
	stream  grpc.BidiStreamingServer[clusterpb.FeedBytes, clusterpb.FeedBytes]
	pending []byte
	end     chan struct{} // closed: the producer has ended
}

// Carry implements the Feeds service.
func (d *fakeDriver) Carry(stream grpc.BidiStreamingServer[clusterpb.FeedBytes, clusterpb.FeedBytes]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	c := &carriedConn{
		number: first.GetConnection(), stream: stream, said: make(chan []byte, 100), end: make(chan struct{}),
	}
	d.conns <- c
	go func() { // ends with the stream
		defer close(c.said)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			c.said <- m.GetData()
		}
	}()
	select {
	case <-c.end:
	case <-stream.Context().Done():
	}
	return nil
}

// carried orders the holder to accept a connection.
func (b *bed) carried(number int64) *carriedConn {
	b.t.Helper()
	b.order(
		&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Connect{Connect: &clusterpb.FeedConnect{Connection: number}}})
	return b.taken(number)
}

// taken returns the connection that the holder has accepted.
func (b *bed) taken(number int64) *carriedConn {
	b.t.Helper()
	select {
	case c := <-b.conns:
		if c.number != number {
			b.t.Fatalf("the holder takes connection %d", c.number)
		}
		c.t = b.t
		return c
	case <-time.After(patience):
		b.t.Fatal("the holder does not take the connection")
		return nil
	}
}

func (c *carriedConn) say(format string, args ...any) {
	c.t.Helper()
	if err := c.stream.Send(&clusterpb.FeedBytes{Data: fmt.Appendf(nil, format, args...)}); err != nil {
		c.t.Fatal(err)
	}
}

// read returns n bytes, or a line if n is 0.
func (c *carriedConn) read(n int) ([]byte, error) {
	for {
		at := n
		if n == 0 {
			at = bytes.IndexByte(c.pending, '\n') + 1
		}
		if at > 0 && at <= len(c.pending) {
			part := c.pending[:at]
			c.pending = c.pending[at:]
			return part, nil
		}
		select {
		case data, more := <-c.said:
			if !more {
				return nil, io.EOF
			}
			c.pending = append(c.pending, data...)
		case <-time.After(patience):
			return nil, errors.New("the holder says nothing")
		}
	}
}

func (c *carriedConn) hear(op string) (m message) {
	c.t.Helper()
	line, err := c.read(0)
	if err == nil {
		err = json.Unmarshal(line, &m)
	}
	if err != nil || m.Op != op {
		c.t.Fatalf("heard %+v instead of %s: %v", m, op, err)
	}
	return m
}

// lease grants the lease that the producer asks for.
func (c *carriedConn) lease(b *bed) {
	b.t.Helper()
	c.say(`{"op":"produce","feed":1,"key":"secret","epoch":0,"partition":2}` + "\n")
	w := await(b, (*clusterpb.HolderMessage).GetLeaseWanted)
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Lease{Lease: &clusterpb.FeedLease{Feed: 1, Producer: w.GetProducer()}},
	})
	if m := c.hear("lease"); m.Size != slots*pageSize || m.Slots != slots {
		b.t.Errorf("lease %+v", m)
	}
}

// TestRefuse: a producer on another host that cannot be served receives the reason.
func TestRefuse(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	stream, err := b.in.cfg.Client.Carry(t.Context())
	if err == nil {
		err = stream.Send(&clusterpb.FeedBytes{Connection: 7})
	}
	if err != nil {
		t.Fatal(err)
	}
	c := b.taken(7)
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		refuse(stream, "too many open files")
	}()
	if m := c.hear("stop"); m.Reason != "too many open files" {
		t.Errorf("heard %+v", m)
	}
	close(c.end)
	<-refused
}

// TestCarried: the batches of a producer on another host reach the program, and the producer gets results back.
func TestCarried(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Begin{
		Begin: &clusterpb.FeedBegin{Feed: 1, Key: "secret", Plan: `{"mode":"inference"}`},
	}})
	program := b.dial()
	program.say(`{"op":"consume","key":%q}`, b.key)
	program.hear("segment")
	program.hear("feed")
	program.say(`{"op":"read","feed":1}`)
	answers := b.dial()
	answers.say(`{"op":"answer","key":%q}`, b.key)
	answers.hear("segment")

	c := b.carried(7)
	c.lease(b)
	c.say(`{"op":"slot"}` + "\n")
	c.say(`{"op":"put","slot":%d,"bytes":3,"rows":3,"piece":5}`+"\n"+"abc"+`{"op":"slot"}`+"\n", c.hear("slot").Slot)
	program.say(`{"op":"next"}`)
	if records, _ := program.handed(); records != "abc" {
		t.Errorf("the program has %q", records)
	}
	slot := c.hear("slot").Slot
	c.say(`{"op":"put","slot":%d,"bytes":`, slot) // in pieces
	c.say(`2,"rows":2}` + "\nd")
	c.say("e")
	if records, _ := program.batch(); records != "de" {
		t.Errorf("the program has %q", records)
	}
	answers.say(`{"op":"slot"}`)
	at := answers.hear("slot").Slot
	if _, err := answers.files[0].WriteAt([]byte("ABC"), int64(at)*pageSize); err != nil {
		t.Fatal(err)
	}
	answers.say(`{"op":"put","feed":1,"piece":1,"begin":0,"end":3,"slot":%d,"bytes":3}`, at)
	m := c.hear("results")
	if m.Piece != 5 || m.End != 3 || m.Bytes != 3 {
		t.Errorf("results %+v", m)
	}
	c.say(`{"op":"fetch","slot":%d}`+"\n", m.Slot)
	if m := c.hear("bytes"); m.Bytes != 3 {
		t.Errorf("%+v", m)
	}
	if body, err := c.read(3); err != nil || string(body) != "ABC" {
		t.Errorf("the results are %q: %v", body, err)
	}
	c.say(`{"op":"taken","slot":%d}`+"\n", m.Slot)
	c.say(`{"op":"done"}` + "\n")
	if m := c.hear("done"); m.Rows != 5 {
		t.Errorf("%d records were delivered", m.Rows)
	}
	if _, err := c.read(0); !errors.Is(err, io.EOF) {
		t.Errorf("the connection goes on: %v", err)
	}
	close(c.end)
}

// TestCarriedEnds: the slots of a lost producer are free, and a producer that breaks the protocol loses its
// connection.
func TestCarriedEnds(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.begin(1)
	for number, last := range []string{
		`{"op":"put","slot":%d,"bytes":9,"rows":1}` + "\nhalf", // and its end
		`{"op":"put","slot":%d,"bytes":5000,"rows":1}` + "\n",  // larger than a slot
		`{"op":"put","slot":%d,"bytes":-1,"rows":1}` + "\n",
		`{"op":"fetch","slot":%d}` + "\n",
	} {
		c := b.carried(int64(number))
		c.lease(b)
		c.say(`{"op":"slot"}` + "\n")
		c.say(last, c.hear("slot").Slot)
		if number == 0 {
			close(c.end)
		}
		if e := await(b, (*clusterpb.HolderMessage).GetLeaseEnded); e.GetRows() != 0 || e.GetComplete() {
			t.Errorf("%s: %v", last, e)
		}
		b.until("free slots", func() bool {
			taken := 0
			for _, s := range b.in.slots {
				if s.state != empty {
					taken++
				}
			}
			return taken <= 1 && len(b.in.producers) == 0 // one is for records of other holders
		})
		if number > 0 {
			close(c.end)
		}
	}
	c := b.carried(100)
	c.say(`{"op":"consume","key":%q}`+"\n", b.key)
	if m := c.hear("stop"); m.Reason == "" {
		t.Errorf("%+v", m)
	}
}

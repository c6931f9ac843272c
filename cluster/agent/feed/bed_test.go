package feed

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// patience is the longest time that a test waits for something that must happen.
const patience = 100 * time.Second

// fakeDriver is a driver with orders that a test gives.
type fakeDriver struct {
	clusterpb.UnimplementedFeedsServer
	said   chan *clusterpb.HolderMessage
	orders chan *clusterpb.HolderOrder
	sent   chan *clusterpb.FeedPiece // by Send
	pieces chan *clusterpb.FeedPiece // to Receive
	refuse atomic.Bool               // Send fails
	conns  chan *carriedConn         // connections that the holder has taken
	end    chan struct{}             // closed: Attend returns
}

func (d *fakeDriver) Attend(stream grpc.BidiStreamingServer[clusterpb.HolderMessage, clusterpb.HolderOrder]) error {
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case d.said <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case o := <-d.orders:
			if err := stream.Send(o); err != nil {
				return err
			}
		case <-d.end:
			return nil
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (d *fakeDriver) Send(stream grpc.ClientStreamingServer[clusterpb.FeedPiece, clusterpb.FeedSent]) error {
	for {
		p, err := stream.Recv()
		if err != nil {
			return stream.SendAndClose(&clusterpb.FeedSent{})
		}
		if d.refuse.Load() {
			return status.Error(codes.Unavailable, "the other holder has ended")
		}
		d.sent <- p
	}
}

func (d *fakeDriver) Receive(_ *clusterpb.FeedReceiver, stream grpc.ServerStreamingServer[clusterpb.FeedPiece]) error {
	for {
		select {
		case p := <-d.pieces:
			if err := stream.Send(p); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return nil
		}
	}
}

// bed is a holder and its driver, both in this process.
type bed struct {
	*fakeDriver
	t   testing.TB
	in  *Holder
	key string // of the program
}

const pageSize = 4096

// newBed opens a holder with slots of one page each.
func newBed(t testing.TB) *bed {
	t.Helper()
	d := &fakeDriver{
		said: make(chan *clusterpb.HolderMessage, 1000), orders: make(chan *clusterpb.HolderOrder),
		conns: make(chan *carriedConn), sent: make(chan *clusterpb.FeedPiece, 100), pieces: make(chan *clusterpb.FeedPiece),
		end: make(chan struct{}),
	}
	server := grpc.NewServer()
	clusterpb.RegisterFeedsServer(server, d)
	ln := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "holder") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	in, err := Open(context.Background(), Config{
		Run: 1, Task: "worker:0", Host: "here", Socket: filepath.Join(dir, "s"), Memory: slots * pageSize,
		Client: clusterpb.NewFeedsClient(conn), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	b := &bed{fakeDriver: d, t: t, in: in}
	_, b.key = in.Socket()
	t.Cleanup(func() {
		in.Close()
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		os.RemoveAll(dir)
	})
	if hello := b.hear().GetHello(); hello.GetTask() != "worker:0" || hello.GetSocket() == "" {
		t.Fatalf("the holder said %v first", hello)
	}
	return b
}

// hear returns the next message to the driver.
func (b *bed) hear() *clusterpb.HolderMessage {
	b.t.Helper()
	select {
	case m := <-b.said:
		return m
	case <-time.After(patience):
		b.t.Fatal("the holder says nothing to the driver")
		return nil
	}
}

// await returns the first message to the driver that a function accepts.
func await[T comparable](b *bed, choose func(*clusterpb.HolderMessage) T) T {
	b.t.Helper()
	var none T
	for {
		if chosen := choose(b.hear()); chosen != none {
			return chosen
		}
	}
}

// held waits for a report of an epoch with these numbers.
func (b *bed) held(what string, holds func(h *clusterpb.FeedHeld) bool) {
	b.t.Helper()
	var last *clusterpb.FeedHeld
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		select {
		case m := <-b.said:
			if h := m.GetHeld(); h != nil {
				if last = h; holds(h) {
					return
				}
			}
		case <-time.After(patience):
		}
	}
	b.t.Fatalf("the holder does not report %s; last: %v", what, last)
}

func (b *bed) order(o *clusterpb.HolderOrder) {
	b.t.Helper()
	select {
	case b.orders <- o:
	case <-time.After(patience):
		b.t.Fatal("the holder takes no orders")
	}
}

func (b *bed) begin(feed int64) {
	b.t.Helper()
	b.beginWith(feed, "secret")
}

// beginWith begins a feed and waits until the holder has received the order.
func (b *bed) beginWith(feed int64, key string) {
	b.t.Helper()
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Begin{Begin: &clusterpb.FeedBegin{Feed: feed, Key: key, Plan: `{"mode":"train"}`}},
	})
	b.until("the feed", func() bool { return b.in.feed != nil && b.in.feed.id == feed })
}

// until waits for a condition of the holder.
func (b *bed) until(what string, holds func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		b.in.mu.Lock()
		held := holds()
		b.in.mu.Unlock()
		if held {
			return
		}
		if time.Now().After(deadline) {
			b.t.Fatalf("the holder does not have %s", what)
		}
	}
}

func (b *bed) allow(rows int64) {
	b.t.Helper()
	b.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Allow{Allow: &clusterpb.FeedAllow{Feed: 1, Rows: rows}}})
}

func (b *bed) epochOver(epoch int32, rows int64) {
	b.t.Helper()
	b.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_EpochOver{EpochOver: &clusterpb.FeedEpochOver{
		Feed: 1, Epoch: epoch, Rows: rows, Most: rows, Least: rows,
	}}})
}

func (b *bed) over(reason string, more bool) {
	b.t.Helper()
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Over{Over: &clusterpb.FeedOver{Feed: 1, Reason: reason, More: more}},
	})
	b.until("the end", func() bool { return b.in.feed.fed != nil })
}

func (b *bed) move(rows int64) {
	b.t.Helper()
	b.order(&clusterpb.HolderOrder{
		Order: &clusterpb.HolderOrder_Move{Move: &clusterpb.FeedMove{Feed: 1, Rows: rows, To: "worker:1"}},
	})
}

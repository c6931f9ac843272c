package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// chunk is the largest part of a batch in one message, in bytes.
const chunk = 1 << 20

// heldInterval is the shortest time between two reports of the holder's numbers.
const heldInterval = 10 * time.Millisecond

// driver is the queue of messages to the driver.
type driver struct {
	mu    sync.Mutex
	wake  chan struct{} // capacity 1
	queue []*clusterpb.HolderMessage
}

func (d *driver) send(m *clusterpb.HolderMessage) {
	d.mu.Lock()
	d.queue = append(d.queue, m)
	d.mu.Unlock()
	d.rouse()
}

func (d *driver) rouse() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *driver) take() []*clusterpb.HolderMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := d.queue
	d.queue = nil
	return queue
}

// changed records that an epoch's numbers must be reported. Caller holds mu.
func (i *Intake) changed(number int) {
	i.feed.epoch(number).changed = true
	i.driver.rouse()
}

// flushHeld queues the reports that are due. Caller holds mu.
func (i *Intake) flushHeld() {
	f := i.feed
	if f == nil {
		return
	}
	for number, e := range f.all {
		if !e.changed {
			continue
		}
		e.changed = false
		e.held.Full, e.held.Starving = i.full(), number == f.at && i.consumer != nil && i.consumer.wants > 0
		held := &clusterpb.FeedHeld{
			Feed: f.id, Epoch: e.held.GetEpoch(), Received: e.held.GetReceived(), MovedIn: e.held.GetMovedIn(), MovedOut: e.held.GetMovedOut(),
			Used: e.held.GetUsed(), Full: e.held.GetFull(), Starving: e.held.GetStarving(), Unread: e.held.GetUnread(),
		}
		i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Held{Held: held}})
	}
}

// full reports whether a producer waits for a slot and none is free.
func (i *Intake) full() bool { return i.nextWaiting() != nil }

// attend keeps the streams to the driver. The holder is over when they end: the driver has ended, or does not know
// the holder any more.
func (i *Intake) attend(ctx context.Context) {
	err := i.attendOnce(ctx)
	if ctx.Err() != nil {
		return
	}
	reason := clusterpb.Lost(i.cfg.Task, err).Error()
	i.cfg.Log.Warn("a feed has failed, and the task's program fails when it reads more of it", "err", reason)
	i.end(reason, reason)
}

func (i *Intake) attendOnce(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	stream, err := i.cfg.Client.Attend(ctx)
	if err != nil {
		return err
	}
	hello := &clusterpb.HolderHello{Run: i.cfg.Run, Attempt: i.cfg.Attempt, Task: i.cfg.Task, Host: i.cfg.Host, Socket: i.cfg.Socket}
	if err := stream.Send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Hello{Hello: hello}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	work.Go(func() error { return i.report(ctx, stream) })
	work.Go(func() error { return i.receive(ctx) })
	work.Go(func() error {
		for {
			order, err := stream.Recv()
			if err != nil {
				return err
			}
			switch m, c := order.GetMove(), order.GetConnect(); {
			case m != nil:
				work.Go(func() error { i.move(ctx, m); return nil })
			case c != nil:
				work.Go(func() error { i.carry(ctx, c.GetConnection()); return nil })
			default:
				i.mu.Lock()
				i.obey(order)
				i.mu.Unlock()
			}
		}
	})
	return work.Wait()
}

// report sends queued messages at once, and the holder's numbers at most once in heldInterval.
func (i *Intake) report(ctx context.Context, stream grpc.BidiStreamingClient[clusterpb.HolderMessage, clusterpb.HolderOrder]) error {
	held := time.NewTimer(heldInterval)
	defer held.Stop()
	rested := true // heldInterval has passed since the last report of numbers
	for {
		select {
		case <-i.driver.wake:
		case <-held.C:
			rested = true
		case <-ctx.Done():
			return ctx.Err()
		}
		if rested {
			i.mu.Lock()
			i.flushHeld()
			i.mu.Unlock()
		}
		queue := i.driver.take()
		for _, m := range queue {
			if stream.Send(m) != nil {
				return nil // Recv returns the reason
			}
		}
		if rested && len(queue) > 0 {
			rested = false
			held.Reset(heldInterval)
		}
	}
}

// move sends records to another holder, through the driver.
func (i *Intake) move(ctx context.Context, m *clusterpb.FeedMove) {
	i.mu.Lock()
	f := i.feed
	if f == nil || f.id != m.GetFeed() {
		i.mu.Unlock()
		return
	}
	number := int(m.GetEpoch())
	pieces := f.cut(number, m.GetRows())
	i.mu.Unlock()
	rows, err := i.sendPieces(ctx, f, m, pieces)
	// The other holder has ended. The driver knows that, and fails the feed if a program still reads it.
	if err != nil {
		if ctx.Err() == nil {
			i.cfg.Log.Info("records were not moved; the feed fails if a program waits for them", "task", i.cfg.Task, "err", clusterpb.Plain(err))
		}
		return
	}
	i.mu.Lock()
	i.flushHeld()
	i.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Moved{Moved: &clusterpb.FeedMoved{
		Feed: m.GetFeed(), Epoch: m.GetEpoch(), To: m.GetTo(), Rows: rows,
	}}})
	i.mu.Unlock()
}

// sendPieces sends pieces that were cut from the queue and frees their slots. It returns the number of sent records.
func (i *Intake) sendPieces(ctx context.Context, f *reading, m *clusterpb.FeedMove, pieces []piece) (rows int64, err error) {
	var stream grpc.ClientStreamingClient[clusterpb.FeedPiece, clusterpb.FeedSent]
	if len(pieces) > 0 {
		stream, err = i.cfg.Client.Send(ctx)
	}
	for _, p := range pieces {
		if err == nil {
			err = i.sendPiece(stream, m, p)
		}
		i.mu.Lock()
		if err == nil {
			rows += p.end - p.begin
			e := f.epoch(int(m.GetEpoch()))
			e.held.MovedOut += p.end - p.begin
			e.changed = true
			i.driver.rouse()
		}
		i.drop(p)
		i.mu.Unlock()
	}
	if stream != nil && (err == nil || errors.Is(err, io.EOF)) {
		// If the driver refused the pieces, Send returned EOF and this call returns the reason.
		_, err = stream.CloseAndRecv()
	}
	if err != nil {
		return rows, fmt.Errorf("move records to %s: %w", m.GetTo(), err)
	}
	return rows, nil
}

// sendPiece sends a part of a batch: the whole batch, and the range of its records.
func (i *Intake) sendPiece(stream grpc.ClientStreamingClient[clusterpb.FeedPiece, clusterpb.FeedSent], m *clusterpb.FeedMove, p piece) error {
	i.mu.Lock()
	size := i.slots[p.slot].bytes
	i.mu.Unlock()
	batch, err := i.seg.Reader(p.slot, size)
	if err != nil {
		return err
	}
	for buffer, offset := make([]byte, chunk), int64(0); offset < size; {
		n, err := io.ReadFull(batch, buffer[:min(size-offset, chunk)])
		if err != nil {
			return fmt.Errorf("read the memory of the feed: %w", err)
		}
		part := &clusterpb.FeedPiece{Feed: m.GetFeed(), Epoch: m.GetEpoch(), To: m.GetTo(), Data: buffer[:n], Offset: offset}
		if offset += int64(n); offset == size {
			part.Begin, part.End = p.begin, p.end
		}
		if err := stream.Send(part); err != nil {
			return err
		}
	}
	return nil
}

// receive accepts the records that other holders send here.
func (i *Intake) receive(ctx context.Context) error {
	stream, err := i.cfg.Client.Receive(ctx, &clusterpb.FeedReceiver{Run: i.cfg.Run, Attempt: i.cfg.Attempt, Task: i.cfg.Task})
	if err != nil {
		return err
	}
	for {
		at, err := i.awaitSlot(ctx)
		if err != nil {
			return err
		}
		if err := i.receivePiece(stream, at); err != nil {
			i.mu.Lock()
			i.slots[at] = slot{}
			i.mu.Unlock()
			return err
		}
	}
}

// awaitSlot reserves a slot for records of another holder.
func (i *Intake) awaitSlot(ctx context.Context) (int, error) {
	stop := context.AfterFunc(ctx, func() {
		i.mu.Lock() // otherwise the waiter might check ctx before its end, and wait after it
		defer i.mu.Unlock()
		i.freed.Broadcast()
	})
	defer stop()
	i.mu.Lock()
	defer i.mu.Unlock()
	i.receiving = true
	defer func() { i.receiving = false }()
	for {
		if i.closed || ctx.Err() != nil {
			return 0, context.Canceled
		}
		for s := range i.slots {
			if i.slots[s].state == empty {
				i.slots[s].state = granted
				return s, nil
			}
		}
		i.freed.Wait()
	}
}

func (i *Intake) receivePiece(stream grpc.ServerStreamingClient[clusterpb.FeedPiece], at int) error {
	for {
		part, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := i.seg.WriteAt(at, part.GetOffset(), part.GetData()); err != nil {
			return err
		}
		size := part.GetOffset() + int64(len(part.GetData()))
		if part.GetEnd() == 0 {
			continue
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		f := i.feed
		if f == nil || f.id != part.GetFeed() || part.GetBegin() >= part.GetEnd() {
			i.slots[at] = slot{}
			return nil
		}
		number, rows := int(part.GetEpoch()), part.GetEnd()-part.GetBegin()
		i.slots[at] = slot{state: filled, bytes: size, rows: rows}
		f.queue = append(f.queue, piece{slot: at, epoch: number, begin: part.GetBegin(), end: part.GetEnd()})
		f.epoch(number).held.MovedIn += rows
		i.changed(number)
		i.dropUnread()
		i.handOut()
		return nil
	}
}

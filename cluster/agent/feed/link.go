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
	"google.golang.org/protobuf/proto"

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
	rouse(d.wake)
}

func (d *driver) take() []*clusterpb.HolderMessage {
	d.mu.Lock()
	defer d.mu.Unlock()
	queue := d.queue
	d.queue = nil
	return queue
}

// changed records that an epoch's numbers must be reported. Caller holds mu.
func (h *Holder) changed(number int) {
	h.feed.epoch(number).changed = true
	rouse(h.driver.wake)
}

// flushHeld queues the reports that are due. Caller holds mu.
func (h *Holder) flushHeld() {
	f := h.feed
	if f == nil {
		return
	}
	for number, e := range f.all {
		if !e.changed {
			continue
		}
		e.changed = false
		e.held.Full = h.nextWaiting() != nil // a producer waits for a slot and none is free
		e.held.Starving = number == f.at && h.consumer != nil && h.consumer.wants > 0
		h.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Held{Held: proto.CloneOf(e.held)}})
	}
}

// attend keeps the streams to the driver. The holder is over when they end: the driver has ended, or does not know
// the holder any more.
func (h *Holder) attend(ctx context.Context) {
	err := h.attendOnce(ctx)
	if ctx.Err() != nil {
		return
	}
	reason := clusterpb.Lost(h.cfg.Task, err).Error()
	h.cfg.Log.Warn("a feed has failed, and the task's program fails when it reads more of it", "err", reason)
	h.end(reason, reason)
}

func (h *Holder) attendOnce(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	stream, err := h.cfg.Client.Attend(ctx)
	if err != nil {
		return err
	}
	hello := &clusterpb.HolderHello{
		Run: h.cfg.Run, Attempt: h.cfg.Attempt, Task: h.cfg.Task, Host: h.cfg.Host, Socket: h.cfg.Socket,
	}
	if err := stream.Send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Hello{Hello: hello}}); err != nil &&
		!errors.Is(err, io.EOF) {
		return err
	}
	work.Go(func() error { return h.report(ctx, stream) })
	work.Go(func() error { return h.receive(ctx) })
	work.Go(func() error {
		for {
			order, err := stream.Recv()
			if err != nil {
				return err
			}
			switch m, c := order.GetMove(), order.GetConnect(); {
			case m != nil:
				work.Go(func() error { h.move(ctx, m); return nil })
			case c != nil:
				work.Go(func() error { h.carry(ctx, c.GetConnection()); return nil })
			default:
				h.mu.Lock()
				h.obey(order)
				h.mu.Unlock()
			}
		}
	})
	return work.Wait()
}

// report sends queued messages at once, and the holder's numbers at most once in heldInterval.
func (h *Holder) report(ctx context.Context,
	stream grpc.BidiStreamingClient[clusterpb.HolderMessage, clusterpb.HolderOrder],
) error {
	held := time.NewTimer(heldInterval)
	defer held.Stop()
	rested := true // heldInterval has passed since the last report of numbers
	for {
		select {
		case <-h.driver.wake:
		case <-held.C:
			rested = true
		case <-ctx.Done():
			return ctx.Err()
		}
		if rested {
			h.mu.Lock()
			h.flushHeld()
			h.mu.Unlock()
		}
		queue := h.driver.take()
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
func (h *Holder) move(ctx context.Context, m *clusterpb.FeedMove) {
	h.mu.Lock()
	f := h.feed
	if f == nil || f.id != m.GetFeed() {
		h.mu.Unlock()
		return
	}
	number := int(m.GetEpoch())
	pieces := f.cut(number, m.GetRows())
	h.mu.Unlock()
	rows, err := h.sendPieces(ctx, f, m, pieces)
	// The other holder has ended. The driver knows that, and fails the feed if a program still reads it.
	if err != nil {
		if ctx.Err() == nil {
			h.cfg.Log.Info("records were not moved; the feed fails if a program waits for them", "task", h.cfg.Task,
				"err", clusterpb.Plain(err))
		}
		return
	}
	h.mu.Lock()
	h.flushHeld()
	h.driver.send(&clusterpb.HolderMessage{Message: &clusterpb.HolderMessage_Moved{Moved: &clusterpb.FeedMoved{
		Feed: m.GetFeed(), Epoch: m.GetEpoch(), To: m.GetTo(), Rows: rows,
	}}})
	h.mu.Unlock()
}

// sendPieces sends pieces that were cut from the queue and frees their slots. It returns the number of sent records.
func (h *Holder) sendPieces(ctx context.Context, f *feedState, m *clusterpb.FeedMove,
	pieces []piece,
) (rows int64, err error) {
	var stream grpc.ClientStreamingClient[clusterpb.FeedPiece, clusterpb.FeedSent]
	if len(pieces) > 0 {
		stream, err = h.cfg.Client.Send(ctx)
	}
	for _, p := range pieces {
		if err == nil {
			err = h.sendPiece(stream, m, p)
		}
		h.mu.Lock()
		if err == nil {
			rows += p.end - p.begin
			e := f.epoch(int(m.GetEpoch()))
			e.held.MovedOut += p.end - p.begin
			e.changed = true
			rouse(h.driver.wake)
		}
		h.drop(p)
		h.mu.Unlock()
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
func (h *Holder) sendPiece(stream grpc.ClientStreamingClient[clusterpb.FeedPiece, clusterpb.FeedSent],
	m *clusterpb.FeedMove, p piece,
) error {
	h.mu.Lock()
	size := h.slots[p.slot].bytes
	h.mu.Unlock()
	batch, err := h.seg.Reader(p.slot, size)
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
func (h *Holder) receive(ctx context.Context) error {
	stream, err := h.cfg.Client.Receive(ctx,
		&clusterpb.FeedReceiver{Run: h.cfg.Run, Attempt: h.cfg.Attempt, Task: h.cfg.Task})
	if err != nil {
		return err
	}
	for {
		at, err := h.awaitSlot(ctx)
		if err != nil {
			return err
		}
		if err := h.receivePiece(stream, at); err != nil {
			h.mu.Lock()
			h.slots[at] = slot{}
			h.mu.Unlock()
			return err
		}
	}
}

// awaitSlot reserves a slot for records of another holder.
func (h *Holder) awaitSlot(ctx context.Context) (int, error) {
	stop := context.AfterFunc(ctx, func() {
		h.mu.Lock() // otherwise the waiter might check ctx before its end, and wait after it
		defer h.mu.Unlock()
		h.freed.Broadcast()
	})
	defer stop()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.receiving = true
	defer func() { h.receiving = false }()
	for {
		if h.closed || ctx.Err() != nil {
			return 0, context.Canceled
		}
		for s := range h.slots {
			if h.slots[s].state == empty {
				h.slots[s].state = granted
				return s, nil
			}
		}
		h.freed.Wait()
	}
}

func (h *Holder) receivePiece(stream grpc.ServerStreamingClient[clusterpb.FeedPiece], at int) error {
	for {
		part, err := stream.Recv()
		if err != nil {
			return err
		}
		if err := h.seg.WriteAt(at, part.GetOffset(), part.GetData()); err != nil {
			return err
		}
		size := part.GetOffset() + int64(len(part.GetData()))
		if part.GetEnd() == 0 {
			continue
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		f := h.feed
		if f == nil || f.id != part.GetFeed() || part.GetBegin() >= part.GetEnd() {
			h.slots[at] = slot{}
			return nil
		}
		number, rows := int(part.GetEpoch()), part.GetEnd()-part.GetBegin()
		h.slots[at] = slot{state: filled, bytes: size, rows: rows}
		f.queue = append(f.queue, piece{slot: at, epoch: number, begin: part.GetBegin(), end: part.GetEnd()})
		f.epoch(number).held.MovedIn += rows
		h.changed(number)
		h.dropUnread()
		h.handOut()
		return nil
	}
}

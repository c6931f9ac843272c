package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/unixsock"
)

// carryChunk is the largest message with a connection's bytes.
const carryChunk = 256 << 10

// carry serves a producer on another host until it ends. The driver carries its connection.
func (h *Holder) carry(ctx context.Context, connection int64) {
	stream, err := h.cfg.Client.Carry(ctx)
	if err == nil {
		err = stream.Send(&clusterpb.FeedBytes{Connection: connection})
	}
	if err != nil {
		h.cfg.Log.Info("a task of Spark on another host cannot feed this task, because the driver does not answer or the "+
			"feed is over", "task", h.cfg.Task, "err", clusterpb.Plain(err))
		return // the driver closes the producer's connection
	}
	ours, theirs, err := unixsock.Pair()
	if err != nil {
		h.cfg.Log.Warn("a task of Spark on another host cannot feed this task; it fails with this error",
			"task", h.cfg.Task, "err", err)
		refuse(stream,
			fmt.Sprintf("the executor of %s on %s cannot take records from another host: %v", h.cfg.Task, h.cfg.Host, err))
		return
	}
	var work sync.WaitGroup
	defer work.Wait()
	defer ours.Close()
	work.Go(func() { h.serve(ctx, theirs, true) })
	said := make(chan struct{})
	work.Go(func() {
		defer close(said)
		toDriver(ours, stream)
	})
	fromDriver(stream, ours)
	_ = ours.CloseWrite() // the producer has ended: serve ends, then toDriver
	<-said
}

// refuse ends a carried connection. The producer reports the reason.
func refuse(stream grpc.BidiStreamingClient[clusterpb.FeedBytes, clusterpb.FeedBytes], reason string) {
	line, _ := json.Marshal(message{Op: "stop", Reason: reason}) // never fails
	_ = stream.Send(&clusterpb.FeedBytes{Data: append(line, '\n')})
	_ = stream.CloseSend()
	fromDriver(stream, io.Discard)
}

// toDriver sends the driver the bytes of the holder for a producer, until the last one.
func toDriver(from io.Reader, stream grpc.BidiStreamingClient[clusterpb.FeedBytes, clusterpb.FeedBytes]) {
	for buffer := make([]byte, carryChunk); ; {
		n, err := from.Read(buffer)
		if n > 0 && stream.Send(&clusterpb.FeedBytes{Data: buffer[:n]}) != nil {
			return // fromDriver receives the reason
		}
		if err != nil {
			_ = stream.CloseSend()
			return
		}
	}
}

// fromDriver writes the bytes of a producer to the holder, until the stream ends. It drops the bytes that come after
// the holder has stopped reading: the driver waits until the producer has read the reason.
func fromDriver(stream grpc.BidiStreamingClient[clusterpb.FeedBytes, clusterpb.FeedBytes], to io.Writer) {
	for taken := true; ; {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		if taken {
			_, err = to.Write(m.GetData())
			taken = err == nil
		}
	}
}

// fill reads the bytes of a batch, which follow its line, into the slot.
func (h *Holder) fill(p *producer, m message, from io.Reader) error {
	h.mu.Lock()
	granted := p.granted[m.Slot] && m.Bytes <= h.seg.Layout().SlotSize(m.Slot)
	h.mu.Unlock()
	for buffer, at := make([]byte, min(carryChunk, max(m.Bytes, 0))), int64(0); granted && at < m.Bytes; {
		n, err := io.ReadFull(from, buffer[:min(m.Bytes-at, carryChunk)])
		if err == nil {
			err = h.seg.WriteAt(m.Slot, at, buffer[:n])
		}
		if err != nil {
			return err
		}
		at += int64(n)
	}
	return nil // a batch without a granted slot is refused with its line
}

// bring sends results to a producer on another host. It returns false if the slot has none for this producer. Caller
// holds mu.
func (h *Holder) bring(p *producer, s int) bool {
	if !h.hasResults(p, s) {
		return false
	}
	body, err := h.seg.Reader(s, h.slots[s].bytes)
	if err != nil {
		return false
	}
	m := message{Op: "bytes", place: place{Slot: s, Bytes: h.slots[s].bytes}}
	p.peer.enqueue(outgoing{line: m, body: body})
	return true
}

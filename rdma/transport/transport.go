// Package transport writes into the memory of another process, in the manner of RDMA's "write with immediate": the
// data is at its place before the receiver is informed of it, and the receiver names no buffer for it. There are
// three providers: SharedMemory for processes of one host, TCP, and Verbs for RDMA between hosts. Package collective
// uses them.
package transport

import (
	"context"
	"errors"
	"net"

	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/verbs"
)

// Place is a place in the memory of a peer.
type Place struct {
	Slot   int
	Offset int64 // in the slot, in bytes
}

// Completion is a complete write of the peer: its data is in this process's memory.
type Completion struct {
	Place
	Size      int64  // in bytes; may be 0
	Immediate uint32 // the number that the peer sent with it
}

// Link is a connection of two processes. Each process has given memory to it. Its methods may be called from any
// goroutine.
type Link interface {
	// Write copies data to a place in the peer's memory, after every earlier Write, and returns when data may be
	// changed. It waits while the peer takes no completions. If ctx ends during a Write, the link ends, too, because
	// the peer might have a part of the data.
	Write(ctx context.Context, to Place, data []byte, immediate uint32) error
	// Completions returns a channel with the peer's writes in their order. It is closed when the link has ended.
	Completions() <-chan Completion
	// Err returns why the link has ended, after Completions is closed: ErrClosed after Close, ErrPeerClosed after the
	// peer's Close, otherwise the failure.
	Err() error
	// Close ends the link and waits until it no longer uses the memory. It may be called several times.
	Close() error
}

// ErrProtocol is the error of a peer that sent data which a peer of the same version never sends.
var ErrProtocol = errors.New("the peer breaks the protocol between tasks")

// Errors of links that were closed.
var (
	ErrClosed     = errors.New("this task has closed the connection")
	ErrPeerClosed = errors.New("the peer has closed the connection")
)

// Region is memory of this process that a provider has prepared for the writes of peers. Several links may use it;
// they end before Close. The mapping outlives the region.
type Region struct {
	mapping *memory.Mapping
	device  *verbs.Memory // nil: no device knows it
}

// Close undoes the preparation of the provider.
func (r *Region) Close() error {
	if r.device == nil {
		return nil
	}
	return r.device.Close()
}

// Provider makes links from connections. Both ends of a connection call Connect.
type Provider interface {
	// Register prepares memory for the writes of peers, once for all links. The caller closes the region.
	Register(own *memory.Mapping) (*Region, error)
	// Connect gives the region to the peer, which writes into it. It owns conn from now on, also if it fails. ctx
	// bounds the time of connecting. The peer has been authenticated: it may write anywhere in the region, at any
	// time.
	Connect(ctx context.Context, conn net.Conn, own *Region) (Link, error)
}

package zmtp

import (
	"cmp"
	"time"

	"github.com/tfcluster/tfcluster/internal/handshake"
)

// Options sets the limits of a socket. The zero value of each field means its default.
type Options struct {
	// Curve makes the socket a CURVE server with these keys: it accepts any client that has the
	// public key, and refuses peers that do not encrypt. nil is the mechanism NULL.
	Curve *CurveKeys
	// MaxFrame and MaxMessage limit what a peer may send, in bytes; default 1 GiB and 2 GiB. A
	// frame counts 64 bytes in addition to its body.
	MaxFrame, MaxMessage int64
	// Trusts reports whether a message proves that its sender may use the socket; nil trusts
	// every peer. It is called with the messages of a peer until it returns true, on the peer's
	// goroutine. Other messages are dropped.
	Trusts func(Message) bool
	// MaxUntrusted limits a message of a peer that is not trusted yet, in bytes; default 64
	// MiB.
	MaxUntrusted int64
	// Untrusted limits the memory of all peers that are not trusted; default 256 MiB for this
	// socket.
	Untrusted *Budget
	// MaxFrames limits the frames of one message; default 2^20.
	MaxFrames int
	// MaxPeers limits the number of peers that have authenticated; default 1024. A CURVE client has after its
	// handshake, because it has the public key; any other peer has with its first message, if Trusts accepts it.
	MaxPeers int
	// Unauthenticated limits the connections that have not, over all sockets with this Limiter in their Options;
	// default one for this socket. Where there are too many, the oldest is closed.
	Unauthenticated *handshake.Limiter
	// HandshakeTimeout is the timeout of a handshake; default 10 s. Behind it a peer may be silent for as long as there
	// is room: a client that can answer an input_request has nothing to send before there is one.
	HandshakeTimeout time.Duration
	// QueueSoft is the size in bytes of a peer's queue above which droppable messages are
	// dropped; default 64 MiB.
	QueueSoft int64
	// QueueHard is the size in bytes of a peer's queue at which the peer is disconnected;
	// default 1 GiB.
	QueueHard int64
	// Note returns the message that replaces dropped ones in a queue, or nil for none. It is
	// called on the peer's goroutine.
	Note func(Lost) Message
	// Refused is called for each peer that was rejected or disconnected, with the reason; may
	// be nil.
	Refused func(peer string, err error)
}

// Lost describes consecutive messages that were dropped from one peer's queue.
type Lost struct {
	First    Message // the first one, without its last frame
	Messages int     // their number
	Bytes    int64   // their size
}

const (
	defaultMaxFrame   = 1 << 30
	defaultMaxMessage = 2 << 30
	defaultMaxFrames  = 1 << 20
	defaultUntrusted  = 64 << 20
	defaultBudget     = 256 << 20
	defaultMaxPeers   = 1024
	defaultHandshake  = handshake.Timeout
	defaultQueueSoft  = 64 << 20
	defaultQueueHard  = 1 << 30
)

func (o Options) withDefaults() Options {
	o.MaxFrame = cmp.Or(o.MaxFrame, defaultMaxFrame)
	o.MaxMessage = cmp.Or(o.MaxMessage, defaultMaxMessage)
	o.MaxFrames = cmp.Or(o.MaxFrames, defaultMaxFrames)
	o.MaxUntrusted = cmp.Or(o.MaxUntrusted, defaultUntrusted)
	if o.Untrusted == nil {
		o.Untrusted = NewBudget(defaultBudget)
	}
	o.MaxPeers = cmp.Or(o.MaxPeers, defaultMaxPeers)
	if o.Unauthenticated == nil {
		o.Unauthenticated = handshake.NewLimiter(handshake.AtOnce(), handshake.Minimum)
	}
	o.HandshakeTimeout = cmp.Or(o.HandshakeTimeout, defaultHandshake)
	o.QueueSoft = cmp.Or(o.QueueSoft, defaultQueueSoft)
	o.QueueHard = cmp.Or(o.QueueHard, defaultQueueHard)
	if o.Note == nil {
		o.Note = func(Lost) Message { return nil }
	}
	if o.Refused == nil {
		o.Refused = func(string, error) {}
	}
	return o
}

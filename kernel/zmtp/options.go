package zmtp

import "time"

// Options sets the limits of a socket. The zero value of each field means its default.
type Options struct {
	// MaxFrame and MaxMessage bound what a peer may send, in bytes; default 1 GiB and 2 GiB. A frame counts 64 bytes
	// beside its body.
	MaxFrame, MaxMessage int64
	// Trusts reports whether a message shows that its sender may use the socket; nil trusts every peer. It is called with
	// what a peer sends until it is trusted, on the peer's own goroutine. What it does not take is dropped.
	Trusts func(Message) bool
	// MaxUntrusted bounds a message of a peer that is not trusted yet, in bytes; default 64 MiB.
	MaxUntrusted int64
	// Untrusted bounds what peers that are not trusted hold together; default 256 MiB of the socket's own.
	Untrusted *Budget
	// MaxFrames bounds the frames of one message; default 2^20.
	MaxFrames int
	// MaxPeers bounds the connections held at one time, handshakes included; default 1024.
	MaxPeers int
	// HandshakeTimeout is how long a peer may take until it is ready; default 10 s.
	HandshakeTimeout time.Duration
	// QueueSoft is the size in bytes of a peer's queue from which droppable messages are dropped; default 64 MiB.
	QueueSoft int64
	// QueueHard is the size in bytes of a peer's queue at which the peer is given up; default 1 GiB.
	QueueHard int64
	// Note makes the message that stands in a queue in place of dropped ones, or nil for none. It is called on the
	// peer's own goroutine.
	Note func(Lost) Message
	// Refused is told of each peer that was turned away or given up, and why; may be nil.
	Refused func(peer string, err error)
}

// Lost describes neighbouring messages that were dropped from one peer's queue.
type Lost struct {
	First    Message // the first of them, without its last frame
	Messages int     // how many
	Bytes    int64   // their size
}

const (
	defaultMaxFrame   = 1 << 30
	defaultMaxMessage = 2 << 30
	defaultMaxFrames  = 1 << 20
	defaultUntrusted  = 64 << 20
	defaultBudget     = 256 << 20
	defaultMaxPeers   = 1024
	defaultHandshake  = 10 * time.Second
	defaultQueueSoft  = 64 << 20
	defaultQueueHard  = 1 << 30
)

func (o Options) withDefaults() Options {
	setDefault(&o.MaxFrame, defaultMaxFrame)
	setDefault(&o.MaxMessage, defaultMaxMessage)
	setDefault(&o.MaxFrames, defaultMaxFrames)
	setDefault(&o.MaxUntrusted, defaultUntrusted)
	if o.Untrusted == nil {
		o.Untrusted = NewBudget(defaultBudget)
	}
	setDefault(&o.MaxPeers, defaultMaxPeers)
	setDefault(&o.HandshakeTimeout, defaultHandshake)
	setDefault(&o.QueueSoft, defaultQueueSoft)
	setDefault(&o.QueueHard, defaultQueueHard)
	if o.Note == nil {
		o.Note = func(Lost) Message { return nil }
	}
	if o.Refused == nil {
		o.Refused = func(string, error) {}
	}
	return o
}

func setDefault[T int | int64 | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}

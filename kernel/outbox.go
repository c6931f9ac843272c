package kernel

import (
	"strings"
	"sync"

	zmq "github.com/go-zeromq/zmq4"
)

// outbox writes messages to one of the child's sockets in order, without ever making
// the sender wait for a child that hangs.
type outbox struct {
	sock zmq.Socket
	wake chan struct{}
	done chan struct{}

	mu    sync.Mutex
	queue [][][]byte // guarded by mu
	once  sync.Once
}

func newOutbox(s zmq.Socket) *outbox {
	return &outbox{sock: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (o *outbox) put(frames [][]byte) {
	o.mu.Lock()
	o.queue = append(o.queue, frames)
	o.mu.Unlock()
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) run() {
	for {
		select {
		case <-o.wake:
		case <-o.done:
			return
		}
		o.mu.Lock()
		q := o.queue
		o.queue = nil
		o.mu.Unlock()
		for _, frames := range q {
			if err := o.sock.SendMulti(zmq.NewMsgFrom(frames...)); err != nil {
				return // the child is gone; its requests are answered by childGone
			}
		}
	}
}

func (o *outbox) close() { o.once.Do(func() { close(o.done) }) }

// tail keeps the last of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

// Write takes everything.
func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > most {
		t.b = append([]byte(nil), t.b[len(t.b)-most:]...)
	}
	return len(p), nil
}

// String is the last lines, in one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(strings.ToValidUTF8(string(t.b), "")), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

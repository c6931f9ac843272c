package feed

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// maxLine bounds a line of the socket, in bytes.
const maxLine = 1 << 20

// message is a line of the socket. The package's comment lists the fields of each op. A line that passes on an order of
// the driver has the fields of that order instead: leaseLine, epochOverLine.
type message struct {
	Op   string          `json:"op"`
	Feed int64           `json:"feed,omitempty"`
	Key  string          `json:"key,omitempty"`
	Plan json.RawMessage `json:"plan,omitempty"`

	Reason string `json:"reason,omitempty"`
	place
	records

	wanted *clusterpb.LeaseWanted // of produce
}

// place is where a batch lies.
type place struct {
	Slot  int   `json:"slot"`
	Bytes int64 `json:"bytes,omitempty"`
	Size  int64 `json:"size,omitempty"`
	Slots int   `json:"slots,omitempty"`
}

// records are numbers of records.
type records struct {
	Epoch  int    `json:"epoch"`
	Rows   int64  `json:"rows"`
	Begin  int64  `json:"begin"`
	End    int64  `json:"end"`
	Piece  int64  `json:"piece,omitempty"`
	Even   bool   `json:"even,omitempty"`
	Batch  int64  `json:"batch,omitempty"`
	Digest string `json:"digest,omitempty"` // of all records of the partition so far
}

type leaseLine struct {
	Op string `json:"op"`
	place
	*clusterpb.FeedLease
}

type epochOverLine struct {
	Op string `json:"op"`
	*clusterpb.FeedEpochOver
}

// peer is a connection of the socket. Messages are queued, so that the holder never waits for a peer.
type peer struct {
	conn *net.UnixConn
	out  *jsonlines.Writer

	mu    sync.Mutex
	wake  chan struct{} // capacity 1
	queue []outgoing    // guarded by mu
	ended bool          // guarded by mu: nothing is queued any more
}

// outgoing is a line that is queued.
type outgoing struct {
	line any       // not changed any more
	file *os.File  // passed with the line; may be nil
	body io.Reader // follows the line; may be nil
}

// writeTimeout bounds the time in which a peer takes a line: a peer that is stopped loses its connection.
const writeTimeout = time.Minute

func newPeer(conn *net.UnixConn) *peer {
	return &peer{conn: conn, out: jsonlines.NewWriter(conn, writeTimeout), wake: make(chan struct{}, 1)}
}

// send queues a line, with a file unless that is nil.
func (p *peer) send(line any, file *os.File) { p.enqueue(outgoing{line: line, file: file}) }

// enqueue queues a line with what it has.
func (p *peer) enqueue(o outgoing) {
	p.mu.Lock()
	if !p.ended {
		p.queue = append(p.queue, o)
	}
	p.mu.Unlock()
	rouse(p.wake)
}

// hangUp ends the connection after what is queued.
func (p *peer) hangUp() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	rouse(p.wake)
}

// rouse wakes the goroutine that waits for a channel of capacity 1.
func rouse(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// writeLoop writes what is queued until hangUp or an error. It leaves the connection open for reading: closing it
// would discard what the peer has not read yet.
func (p *peer) writeLoop() {
	for {
		p.mu.Lock()
		queue, ended := p.queue, p.ended
		p.queue = nil
		p.mu.Unlock()
		for _, o := range queue {
			if err := p.write(o); err != nil {
				_ = p.conn.Close() // its reader ends
				return
			}
		}
		if ended && len(queue) == 0 {
			_ = p.conn.CloseWrite()
			return
		}
		if len(queue) == 0 {
			<-p.wake
		}
	}
}

func (p *peer) write(o outgoing) error {
	switch {
	case o.file != nil:
		return p.out.Write(o.line, o.file)
	case o.body != nil:
		return p.out.WriteBody(o.line, o.body)
	default:
		return p.out.Write(o.line)
	}
}

// errNoMessage ends a connection with a peer that does not speak the protocol.
var errNoMessage = errors.New("this is no message of a feed")

// lineReader reads messages, and the bytes that follow them.
type lineReader struct{ *jsonlines.Reader }

func newLineReader(r io.Reader) lineReader { return lineReader{jsonlines.NewReader(r, maxLine)} }

// read returns the next message.
func (l lineReader) read() (message, error) {
	line, err := l.Next()
	if errors.Is(err, jsonlines.ErrTooLong) {
		return message{}, errNoMessage
	}
	if err != nil {
		return message{}, err
	}
	return parseMessage(line)
}

// parseMessage reads a line.
func parseMessage(line []byte) (message, error) {
	var m message
	err := json.Unmarshal(line, &m)
	if err == nil && m.Op == "produce" {
		m.wanted = &clusterpb.LeaseWanted{}
		err = json.Unmarshal(line, m.wanted)
	}
	if err != nil || m.Op == "" {
		return message{}, errNoMessage
	}
	return m, nil
}

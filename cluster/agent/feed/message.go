package feed

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/memory"
)

// maxLine bounds a line of the socket, in bytes.
const maxLine = 1 << 20

// message is a line of the socket; the package's comment says which fields belong to which op. Lines that pass on what
// the driver has ordered have the fields of its order instead: leaseLine, epochOverLine.
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

	mu    sync.Mutex
	wake  chan struct{} // capacity 1
	queue []outgoing    // guarded by mu
	ended bool          // guarded by mu: nothing is queued any more
}

type outgoing struct {
	line []byte
	file *os.File  // sent with the line; may be nil
	body io.Reader // follows the line; may be nil
}

// writeTimeout bounds the time in which a peer takes a line: one that is stopped gives up its connection.
const writeTimeout = time.Minute

// send queues a line, with a descriptor if file is not nil.
func (p *peer) send(m any, file *os.File) { p.enqueue(m, outgoing{file: file}) }

// sendBody queues a line and the bytes that follow it.
func (p *peer) sendBody(m message, body io.Reader) { p.enqueue(m, outgoing{body: body}) }

func (p *peer) enqueue(m any, o outgoing) {
	line, err := json.Marshal(m)
	if err != nil {
		return // a plan that is not JSON was refused before
	}
	o.line = append(line, '\n')
	p.mu.Lock()
	if !p.ended {
		p.queue = append(p.queue, o)
	}
	p.mu.Unlock()
	p.rouse()
}

// hangUp ends the connection behind what is queued.
func (p *peer) hangUp() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.rouse()
}

func (p *peer) rouse() {
	select {
	case p.wake <- struct{}{}:
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
			_ = p.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
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
	if o.file != nil {
		return memory.Send(p.conn, o.line, o.file)
	}
	_, err := p.conn.Write(o.line)
	if err == nil && o.body != nil {
		_, err = io.Copy(p.conn, o.body)
	}
	return err
}

// errNoMessage ends a connection whose peer does not speak the protocol.
var errNoMessage = errors.New("this is no message of a feed")

// lineReader reads messages.
type lineReader struct{ r *bufio.Reader }

func newLineReader(conn net.Conn) lineReader {
	return lineReader{bufio.NewReaderSize(conn, 4096)}
}

// read returns the next message.
func (l lineReader) read() (message, error) {
	var line []byte
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > maxLine {
			return message{}, errNoMessage
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return message{}, err
		}
		break
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

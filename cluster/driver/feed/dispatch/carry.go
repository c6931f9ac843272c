package dispatch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Times of a carried connection.
const (
	carryTimeout = 10 * time.Second // for the holder to accept the connection
	writeTimeout = time.Minute      // for the producer to take bytes of the holder
	linger       = 5 * time.Second  // for the producer to read the last bytes
)

// carryChunk is the largest message with a connection's bytes.
const carryChunk = 256 << 10

// carried is the connection of a producer without a holder on its host. The driver carries its bytes to a holder and
// back, and does not read them.
type carried struct {
	conn net.Conn
	to   *holder
	late *time.Timer // closes the connection if the holder does not accept it
}

// routeName returns a name for the certificate of a feed's producers. The name is random because another driver of
// the same authority numbers its feeds from 1 again.
func routeName() string {
	random := make([]byte, 8)
	_, _ = rand.Read(random) // never fails
	return "feed-" + hex.EncodeToString(random)
}

// addRoute opens a route by which the feed's producers reach holders on other hosts.
func (d *Dispatch) addRoute(s *session) {
	route, err := d.runs.Route(s.route.name)
	if err != nil {
		d.log.Warn("tasks of Spark on hosts without an executor of this cluster cannot feed it, and fail; the others can",
			"err", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s.route.open = route
}

// Produce connects a producer with a holder. feed is the name in the producer's certificate. Produce owns the
// connection and returns at once.
func (d *Dispatch) Produce(conn net.Conn, feed string) {
	if reason, ok := d.connect(conn, feed); !ok {
		line, _ := json.Marshal(map[string]string{"op": "stop", "reason": reason}) // never fails
		_, _ = conn.Write(append(line, '\n'))                                      // before the deadline of the handshake
		time.AfterFunc(linger, func() { _ = conn.Close() })                        // closing at once might discard the line
	}
}

// connect chooses a holder for a connection, or returns the reason why there is none. If the feed is over but not
// forgotten, the producer receives the reason that the holders have sent to their producers. It gets no holder then,
// because a holder refuses a producer only after the producer's first line.
func (d *Dispatch) connect(conn net.Conn, feed string) (refused string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.on
	if s == nil || s.route.name != feed {
		return "this feed is over", false
	}
	if p := s.feed.Progress(); p.Over {
		return p.Fault, false // "" if no program wants more
	}
	to := s.leastCarried()
	if to == nil {
		return "no program reads any more", false
	}
	d.connections++
	n := d.connections
	to.carries++
	c := &carried{conn: conn, to: to, late: time.AfterFunc(carryTimeout, func() {
		if c := d.takeCarried(n); c != nil {
			d.endCarried(c)
		}
	})}
	d.waiting[n] = c
	to.order(&clusterpb.HolderOrder{Order: &clusterpb.HolderOrder_Connect{Connect: &clusterpb.FeedConnect{Connection: n}}})
	return "", true
}

// leastCarried returns the holder with the fewest carried connections, of the holders with a program that reads; nil
// if there is none.
func (s *session) leastCarried() *holder {
	var least *holder
	for _, task := range s.run.Tasks {
		if h := s.holders[task.Name]; h != nil && !s.left[task.Name] && (least == nil || h.carries < least.carries) {
			least = h
		}
	}
	return least
}

// takeCarried returns and removes a connection that waits to be carried; nil if none has this number.
func (d *Dispatch) takeCarried(n int64) *carried {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.waiting[n]
	delete(d.waiting, n)
	return c
}

func (d *Dispatch) endCarried(c *carried) {
	c.late.Stop()
	_ = c.conn.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	c.to.carries--
}

// Carry implements the Feeds service.
func (d *Dispatch) Carry(stream grpc.BidiStreamingServer[clusterpb.FeedBytes, clusterpb.FeedBytes]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	d.mu.Lock()
	waits := d.waiting[first.GetConnection()]
	d.mu.Unlock()
	if waits != nil { // a stranger must not end it
		if _, err := d.caller(stream.Context(), waits.to.hello.GetTask()); err != nil {
			return err
		}
	}
	c := d.takeCarried(first.GetConnection())
	if c == nil {
		return status.Error(codes.NotFound, "the producer has ended")
	}
	defer d.endCarried(c)
	_ = c.conn.SetDeadline(time.Time{}) // the handshake's
	stop := context.AfterFunc(stream.Context(), func() { _ = c.conn.Close() })
	defer stop()
	go func() { // ends with the stream, which ends when this handler returns
		if err := fromHolder(stream, c.conn); err != nil {
			_ = c.conn.Close()
		}
	}()
	for buffer := make([]byte, carryChunk); ; {
		n, err := c.conn.Read(buffer)
		if n > 0 {
			if err := stream.Send(&clusterpb.FeedBytes{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the producer has ended
		}
	}
}

// fromHolder sends the bytes of a holder to the producer. After the last byte, the producer has a moment to read it.
func fromHolder(stream grpc.BidiStreamingServer[clusterpb.FeedBytes, clusterpb.FeedBytes], conn net.Conn) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return conn.SetReadDeadline(time.Now().Add(linger))
		}
		if err != nil {
			return err
		}
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, err := conn.Write(m.GetData()); err != nil {
			return err
		}
	}
}

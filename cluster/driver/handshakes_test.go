package driver

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/internal/handshake"
)

// handshakeServer accepts connections as a gRPC server does, and counts those whose
// handshake succeeded.
type handshakeServer struct {
	ln       net.Listener
	pending  *handshake.Limiter
	arrived  chan struct{} // from the backlog; it may wait for room
	accepted chan struct{}
	entered  chan net.Conn
	produced chan string
}

func serveHandshakes(t *testing.T, limit int, minimum time.Duration, config *tls.Config) *handshakeServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	h := handshake.NewLimiter(limit, minimum)
	s := &handshakeServer{
		nil, h, make(chan struct{}, 100), make(chan struct{}, 100), make(chan net.Conn, 100), make(chan string, 100),
	}
	s.ln = h.Listen(&arrivals{ln, s.arrived})
	creds := &handshakeCredentials{credentials.NewTLS(config), h, func(conn net.Conn, feed string) {
		s.produced <- feed
		_ = conn.Close()
	}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := s.ln.Accept()
			if err != nil {
				return
			}
			s.accepted <- struct{}{}
			go func() { // ends with the connection
				secure, _, err := creds.ServerHandshake(conn)
				if err != nil {
					_ = conn.Close()
					return
				}
				s.entered <- secure
			}()
		}
	}()
	t.Cleanup(func() { s.ln.Close(); <-ended })
	return s
}

// arrivals is a listener that reports each connection before it is limited.
type arrivals struct {
	net.Listener
	arrived chan struct{}
}

func (a *arrivals) Accept() (net.Conn, error) {
	conn, err := a.Listener.Accept()
	if err == nil {
		a.arrived <- struct{}{}
	}
	return conn, err
}

func (s *handshakeServer) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", s.ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// patience is the longest time that a test waits for something that must happen.
const patience = 100 * time.Second

func within[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("%s: not within %s", what, patience)
		panic("unreachable")
	}
}

// authority gives both ends' configurations.
func authority(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	a, err := auth.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	server, err = a.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := a.Issue("0")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return server, &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: server.ClientCAs, ServerName: "coordinator",
		NextProtos: []string{"h2"},
	}
}

// TestHandshakesLimited: the oldest connection that does not authenticate makes room for
// another, and not before it had its time.
func TestHandshakesLimited(t *testing.T) {
	t.Parallel()
	config, _ := authority(t)
	const minimum = 300 * time.Millisecond
	s := serveHandshakes(t, 3, minimum, config)
	began := time.Now()
	first := s.dial(t)
	for range 2 {
		s.dial(t)
	}
	for range 3 {
		within(t, "accept", s.accepted)
	}
	s.dial(t)
	within(t, "accept one too many", s.accepted)
	if took := time.Since(began); took < minimum {
		t.Errorf("it was accepted after %s: the oldest had less than %s", took, minimum)
	}
	if err := first.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !isReset(err) {
		t.Errorf("the oldest is not closed: %v", err)
	}
	if n := s.pending.Pending(); n != 3 {
		t.Errorf("%d connections are in their handshake, want 3", n)
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// TestHandshakesDone: a connection that has authenticated takes no room, and one that is
// refused none either.
func TestHandshakesDone(t *testing.T) {
	t.Parallel()
	config, client := authority(t)
	s := serveHandshakes(t, 1, time.Hour, config) // none is closed for another
	for range 3 {
		conn := tls.Client(s.dial(t), client)
		if err := conn.Handshake(); err != nil {
			t.Fatal(err)
		}
		within(t, "a handshake", s.entered)
		stranger := tls.Client(s.dial(t), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err := stranger.Handshake(); err == nil {
			_, err = stranger.Read(make([]byte, 1)) // of TLS 1.3 the client hears of it so
			if err == nil {
				t.Error("one without a certificate is let in")
			}
		}
		stranger.Close()
	}
}

// TestHandshakesClose: a listener that waits for room is closed all the same.
func TestHandshakesClose(t *testing.T) {
	t.Parallel()
	config, _ := authority(t)
	s := serveHandshakes(t, 1, time.Hour, config)
	s.dial(t)
	within(t, "accept", s.accepted)
	within(t, "arrive", s.arrived)
	s.dial(t)
	within(t, "arrive and wait for room", s.arrived)
	closed := make(chan struct{})
	go func() { s.ln.Close(); close(closed) }()
	within(t, "close", closed)
	within(t, "the one that waited", s.accepted)
}

// TestProducers: a certificate of a feed's producers is good for their protocol alone, and theirs alone is.
func TestProducers(t *testing.T) {
	t.Parallel()
	ours, err := auth.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	other, err := auth.NewAuthority("c")
	if err != nil {
		t.Fatal(err)
	}
	config, err := ours.ServerTLS()
	if err != nil {
		t.Fatal(err)
	}
	s := serveHandshakes(t, 1, time.Hour, config)
	for _, tt := range []struct {
		name, protocol string
		issue          func(string) ([]byte, []byte, error)
		want           bool // it is let in
	}{
		{"an agent", "h2", ours.Issue, true},
		{"a producer", auth.ProducerProtocol, ours.IssueProducer, true},
		{"a producer that calls", "h2", ours.IssueProducer, false},
		{"an agent that produces", auth.ProducerProtocol, ours.Issue, false},
		{"another cluster's producer", auth.ProducerProtocol, other.IssueProducer, false},
	} {
		certificate, key, err := tt.issue("feed-7")
		if err != nil {
			t.Fatal(err)
		}
		pair, err := tls.X509KeyPair(certificate, key)
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(s.dial(t), &tls.Config{
			Certificates: []tls.Certificate{pair}, RootCAs: config.ClientCAs, ServerName: "coordinator",
			NextProtos: []string{tt.protocol},
		})
		if err := conn.Handshake(); err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		switch {
		case !tt.want:
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_, err := conn.Read(make([]byte, 1)) // of TLS 1.3 the client hears of it so
			if err == nil || errors.Is(err, io.EOF) || os.IsTimeout(err) {
				t.Errorf("%s is let in: %v", tt.name, err)
			}
		case tt.protocol == "h2":
			within(t, tt.name, s.entered)
		default:
			if feed := within(t, tt.name, s.produced); feed != "feed-7" {
				t.Errorf("%s: of feed %q", tt.name, feed)
			}
		}
		conn.Close()
	}
	if len(s.entered)+len(s.produced) != 0 {
		t.Errorf("%d and %d more are let in", len(s.entered), len(s.produced))
	}
}

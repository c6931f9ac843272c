package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Variables of the measurement: latencyWanted asks for it, latencyPeer makes a process the peer.
const (
	latencyWanted = "TFCLUSTER_TEST_LATENCY"
	latencyPeer   = "TFCLUSTER_TEST_LATENCY_PEER" // WAY=NETWORK=ADDRESS
)

const (
	smallMessage = 4
	largeMessage = 4 << 20
)

// overGRPC is a call of grpc-go with the same data, for comparison.
const overGRPC = "gRPC"

// TestLatency prints the time of a message to another process and of its answer of 4 bytes, by each way. The ways are
// measured in turns, so that other load on the machine affects all of them.
func TestLatency(t *testing.T) {
	if os.Getenv(latencyWanted) == "" {
		t.Skip("a measurement: " + latencyWanted + "=1, in make test-rdma and make bench")
	}
	var all []*measured
	for _, w := range append([]way{{name: overGRPC, listen: listenTCP}}, ways(t)...) {
		if w.name != "TLS" && w.name != "RDMA stub" { // the peer is another process
			all = append(all, &measured{name: w.name, send: connectPeer(t, w)})
		}
	}
	for round := range 4 {
		for _, m := range all {
			m.measure(t, 150, smallMessage, &m.small)
			m.measure(t, 3, largeMessage, &m.large)
			if round == 0 { // the first round warms up
				m.small, m.large = nil, nil
			}
		}
	}
	fmt.Printf("%-14s %10s %9s %9s %12s\n", "round trip", "4 B: p10", "p50", "p99", "4 MB: p50")
	for _, m := range all {
		slices.Sort(m.small)
		slices.Sort(m.large)
		fmt.Printf("%-14s %10.1f %9.1f %9.1f %12.1f µs\n", m.name, quantile(m.small, .1), quantile(m.small, .5),
			quantile(m.small, .99), quantile(m.large, .5))
	}
}

// measured has the times of a way.
type measured struct {
	name         string
	send         func(size int) error // sends a message and waits for the answer
	small, large []time.Duration
}

func (m *measured) measure(t *testing.T, n, size int, to *[]time.Duration) {
	t.Helper()
	for range n {
		began := time.Now()
		if err := m.send(size); err != nil {
			t.Fatalf("%s: %v", m.name, err)
		}
		*to = append(*to, time.Since(began))
	}
}

// connectPeer starts the peer of a way.
func connectPeer(t *testing.T, w way) func(size int) error {
	t.Helper()
	ln := w.listen(t)
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLatencyPeer$")
	cmd.Env = append(os.Environ(),
		strings.Join([]string{latencyPeer + "=" + w.name, ln.Addr().Network(), ln.Addr().String()}, "="))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if w.name == overGRPC {
		client, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		return func(size int) error {
			return client.Invoke(t.Context(), "/test/Echo", &wrapperspb.BytesValue{Value: make([]byte, size)},
				&wrapperspb.BytesValue{})
		}
	}
	own := segment(t, largeMessage, 1)
	l, err := w.provider.Connect(t.Context(), conn, registered(t, w, own))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return func(size int) error {
		err := own.Use(func(slots [][]byte) error { return l.Write(t.Context(), Place{}, slots[0][:size], 0) })
		if _, more := <-l.Completions(); err == nil && !more {
			err = errors.New("the link has ended")
		}
		return err
	}
}

// quantile returns a quantile of sorted times, in µs.
func quantile(sorted []time.Duration, q float64) float64 {
	return float64(sorted[int(q*float64(len(sorted)-1))].Nanoseconds()) / 1e3
}

// TestLatencyPeer is the process that answers the messages.
func TestLatencyPeer(t *testing.T) {
	name, where, ok := strings.Cut(os.Getenv(latencyPeer), "=")
	if !ok {
		t.Skip("TestLatency runs it as a process of its own")
	}
	network, address, _ := strings.Cut(where, "=")
	conn, err := net.Dial(network, address)
	if err != nil {
		t.Fatal(err)
	}
	if name == overGRPC {
		answerGRPC(t, conn)
		return
	}
	for _, w := range ways(t) {
		if w.name != name {
			continue
		}
		l, err := w.provider.Connect(t.Context(), conn, registered(t, w, segment(t, largeMessage, 1)))
		if err != nil {
			t.Fatal(err)
		}
		for range l.Completions() {
			if err := l.Write(t.Context(), Place{}, make([]byte, smallMessage), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// answerGRPC serves calls on one connection.
func answerGRPC(t *testing.T, conn net.Conn) {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(1 << 30))
	echo := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := &wrapperspb.BytesValue{}
		if err := decode(in); err != nil {
			return nil, err
		}
		return &wrapperspb.BytesValue{Value: in.GetValue()[:smallMessage]}, nil
	}
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: echo}},
	}, nil)
	if err := server.Serve(&oneConn{conn: conn, over: t.Context().Done()}); err != nil {
		t.Fatal(err)
	}
}

// oneConn is a listener that has one connection.
type oneConn struct {
	conn net.Conn
	over <-chan struct{}
}

// Accept implements net.Listener.
func (l *oneConn) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.over
	return nil, net.ErrClosed
}

// Addr implements net.Listener.
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }

// Close implements net.Listener.
func (l *oneConn) Close() error { return nil }

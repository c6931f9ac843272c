package ipc

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// serve answers the calls of each connection, except those of the first silent connections. Each call is
// reported on the channel.
func serve(t *testing.T, silent int32) (address string, received <-chan struct{}) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int32
	calls, done := make(chan struct{}, 16), make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r, answers := bufio.NewReader(c), n.Add(1) > silent
			_, err = r.Discard(7)
			for err == nil {
				var id int32
				if id, err = readCall(r); err != nil || id < 0 {
					continue
				}
				calls <- struct{}{}
				if answers {
					_, err = c.Write(responseFrame(t,
						&yarnpb.RpcResponseHeader{CallId: new(uint32(id)), Status: yarnpb.RpcResponseHeader_SUCCESS.Enum()},
						&yarnpb.KillApplicationResponse{IsKillCompleted: new(true)}))
				}
			}
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String(), calls
}

// readCall reads one frame of a client and returns its call number.
func readCall(r io.Reader) (int32, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return 0, err
	}
	frame := make([]byte, int(size[2])<<8|int(size[3]))
	if _, err := io.ReadFull(r, frame); err != nil {
		return 0, err
	}
	h := &yarnpb.RpcRequestHeader{}
	err := unmarshalFrom(bytes.NewBuffer(frame), h)
	return h.GetCallId(), err
}

func callKill(ctx context.Context, c *Client) error {
	var m yarnpb.KillApplicationResponse
	err := c.Call(ctx, "m", &yarnpb.GetNewApplicationRequest{}, &m)
	if err == nil && !m.GetIsKillCompleted() {
		err = errors.New("the response is for another call")
	}
	return err
}

// TestHungServer: after a server hangs, the call is made again with a new connection.
func TestHungServer(t *testing.T) {
	t.Parallel()
	address, _ := serve(t, 2)
	c := NewClient([]string{address}, time.Minute, Config{Protocol: "p", User: "u"})
	defer c.Close()
	c.tryLimit = 50 * time.Millisecond
	if err := callKill(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// TestAlwaysHung: a server that always hangs is reported as unreachable in one line, and not as the end of
// the caller's context.
func TestAlwaysHung(t *testing.T) {
	t.Parallel()
	address, _ := serve(t, 1000)
	c := NewClient([]string{address}, 100*time.Millisecond, Config{Protocol: "p", User: "u"})
	defer c.Close()
	c.tryLimit = 50 * time.Millisecond
	err := callKill(t.Context(), c)
	if !errors.Is(err, ErrUnreachable) || strings.Contains(err.Error(), "\n") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := callKill(ctx, c); errors.Is(err, ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's deadline: %v", err)
	}
}

// TestNoCommonWay: where client and server allow no common way to authenticate, the call is not tried again and the
// server is not called unreachable.
func TestNoCommonWay(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tries := make(chan int, 1)
	go func() {
		n := 0
		defer func() { tries <- n }()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n++
			r := bufio.NewReader(c)
			if _, err := r.Discard(7); err == nil {
				_, _ = readCall(r)
				_, _ = c.Write(responseFrame(t,
					&yarnpb.RpcResponseHeader{CallId: new(uint32(1<<32 + saslCall)), Status: yarnpb.RpcResponseHeader_SUCCESS.Enum()},
					&yarnpb.RpcSasl{State: yarnpb.RpcSasl_NEGOTIATE.Enum(), Auths: []*yarnpb.RpcSasl_SaslAuth{
						{Method: new("KERBEROS"), Mechanism: new("GSSAPI")},
					}}))
			}
			c.Close()
		}
	}()
	c := NewClient([]string{l.Addr().String()}, time.Minute,
		Config{Protocol: "p", Token: &credentials.Token{Identifier: []byte("i"), Kind: credentials.AMRM}})
	defer c.Close()
	err = callKill(t.Context(), c)
	if _, ok := errors.AsType[*NegotiationError](err); !ok || errors.Is(err, ErrUnreachable) ||
		!strings.Contains(err.Error(), "it offers KERBEROS") {
		t.Errorf("the call ended with %v", err)
	}
	l.Close()
	if n := <-tries; n != 1 {
		t.Errorf("the client connected %d times", n)
	}
}

// withByte returns a frame with a byte more, which begins a message that does not end.
func withByte(frame []byte) []byte {
	frame[3]++ // the length
	return append(frame, 0xFF)
}

// TestUnusableAnswers: a server that accepts the connection and gives no usable answer is tried again, and the error
// says what was wrong with the answer.
func TestUnusableAnswers(t *testing.T) {
	t.Parallel()
	header := &yarnpb.RpcResponseHeader{
		CallId: new(uint32(1<<32 + saslCall)), Status: yarnpb.RpcResponseHeader_SUCCESS.Enum(),
	}
	for want, answer := range map[string][]byte{
		"the server ended the connection: compare hadoop.rpc.protection":                 nil,
		"after 2 of 1024 bytes of the answer: the connection was closed; check the netw": {0, 0, 4, 0, 1, 2},
		"a web server answers there: the port is that of a page, " +
			"not that for calls: ": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
		"the server's answer to the authentication is not Hadoop's (": withByte(responseFrame(t, header)),
		"the server answered SUCCESS, which is not a step of the authen": responseFrame(t, header,
			&yarnpb.RpcSasl{State: yarnpb.RpcSasl_SUCCESS.Enum()}),
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				r := bufio.NewReader(c)
				if _, err := r.Discard(7); err == nil {
					_, _ = readCall(r)
					_, _ = c.Write(answer)
				}
				c.Close()
			}
		}()
		c := NewClient([]string{l.Addr().String()}, 100*time.Millisecond,
			Config{Protocol: "p", Token: &credentials.Token{Identifier: []byte("i"), Kind: credentials.AMRM}})
		err = callKill(t.Context(), c)
		if _, answered := errors.AsType[*AnswerError](err); !answered || !errors.Is(err, ErrUnreachable) ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %q", err, want)
		}
		_ = c.Close()
		l.Close()
		<-done
	}
}

// TestSetConfigUnderCall: a pending call is made again when its token is replaced.
func TestSetConfigUnderCall(t *testing.T) {
	t.Parallel()
	address, received := serve(t, 1)
	c := NewClient([]string{address}, time.Minute, Config{Protocol: "p", User: "u"})
	defer c.Close()
	called := make(chan error, 1)
	go func() { called <- callKill(t.Context(), c) }()
	<-received
	c.SetConfig(Config{Protocol: "p", User: "another"})
	if err := <-called; err != nil {
		t.Error(err)
	}
}

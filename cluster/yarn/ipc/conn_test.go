package ipc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// listen starts a server that calls serve with each connection.
func listen(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
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
			serve(c)
			c.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
	return l.Addr().String()
}

// silent reads and never responds.
func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

var token = &credentials.Token{Identifier: []byte("i"), Password: []byte("p"), Kind: credentials.AMRM}

// TestSilence: a server that hangs does not block a call beyond its context.
func TestSilence(t *testing.T) {
	t.Parallel()
	address := listen(t, silent)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := ipc.Dial(ctx, address, ipc.Config{Protocol: "p", Token: token}); !errors.Is(err,
		context.DeadlineExceeded) || !strings.Contains(err.Error(), address) {
		t.Errorf("authenticating: %v", err)
	}
	c, err := ipc.Dial(t.Context(), address, ipc.Config{Protocol: "p", User: "u"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Call(ctx, "m", &yarnpb.GetNewApplicationRequest{}, &yarnpb.GetNewApplicationResponse{}); !errors.Is(err,
		context.DeadlineExceeded) {
		t.Errorf("calling: %v", err)
	}
	called := make(chan error)
	go func() {
		called <- c.Call(t.Context(), "m", &yarnpb.GetNewApplicationRequest{}, &yarnpb.GetNewApplicationResponse{})
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-called; err == nil {
		t.Error("a call outlives its connection")
	}
}

// TestNobodyThere: a Client's call ends after retryFor, with an error that names the addresses, and after
// Close.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	gone := listen(t, func(net.Conn) {})
	c := ipc.NewClient([]string{gone, "127.0.0.1:1"}, 300*time.Millisecond, ipc.Config{Protocol: "p", User: "u"})
	err := c.Call(t.Context(), "m", &yarnpb.GetNewApplicationRequest{}, &yarnpb.GetNewApplicationResponse{})
	if !errors.Is(err, ipc.ErrUnreachable) || !strings.Contains(err.Error(), gone) {
		t.Errorf("calling: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Call(t.Context(), "m", &yarnpb.GetNewApplicationRequest{},
		&yarnpb.GetNewApplicationResponse{}); err == nil {
		t.Error("a closed client calls")
	}
}

// TestNoHadoop: the error for a server that is not Hadoop's asks whether it is one.
func TestNoHadoop(t *testing.T) {
	t.Parallel()
	address := listen(t, func(c net.Conn) {
		_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
		silent(c)
	})
	if _, err := ipc.Dial(t.Context(), address, ipc.Config{Protocol: "p", Token: token}); err == nil ||
		!strings.Contains(err.Error(), "not of a web page") {
		t.Error(err)
	}
}

package ipc

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/yarn/credentials"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Config has the protocol and the credentials of a connection.
type Config struct {
	Protocol string // the Java interface: org.apache.hadoop.yarn.api.ApplicationClientProtocolPB
	User     string // for simple authentication
	// Token authenticates the caller; nil for simple authentication.
	Token *credentials.Token
	// Protections are the permitted values of hadoop.rpc.protection (authentication, integrity, privacy) in
	// order of preference. If there are none, the server decides.
	Protections []string
}

// qops returns SASL's names of the permitted protections.
func (c Config) qops() ([]string, error) {
	var qops []string
	for _, p := range c.Protections {
		switch p {
		case "authentication":
			qops = append(qops, qopAuth)
		case "integrity":
			qops = append(qops, qopInt)
		case "privacy":
			qops = append(qops, qopConf)
		default:
			return nil, fmt.Errorf(
				"hadoop.rpc.protection in Hadoop's configuration has %q: want authentication, integrity or privacy", p)
		}
	}
	return qops, nil
}

// Limits for calls whose context has no earlier deadline.
const (
	dialLimit = 10 * time.Second // to connect and authenticate
	callLimit = 60 * time.Second // for one call
)

// Conn is one connection for one protocol. It ends at its first failure.
type Conn struct {
	nc       net.Conn
	protocol string
	clientID []byte
	reader   io.Reader      // used by the goroutine read, after Dial
	in       *securityLayer // used like reader; nil without protection

	writing sync.Mutex     // held for one frame, so that protected frames keep their order
	out     *securityLayer // guarded by writing; nil without protection

	mu    sync.Mutex
	calls map[int32]chan<- response // guarded by mu: pending calls
	next  int32                     // guarded by mu
	err   error                     // guarded by mu: why the connection has ended

	done chan struct{} // closed when read has returned
}

// errClosed is the error of a connection after Close.
var errClosed = errors.New(
	"the connection to the Hadoop server was closed, because its token was renewed or the cluster ends")

// Dial connects to host:port. The context applies to connecting only.
func Dial(ctx context.Context, address string, config Config) (*Conn, error) {
	c, err := dial(ctx, address, config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", address, err)
	}
	return c, nil
}

func dial(ctx context.Context, address string, config Config) (*Conn, error) {
	qops, err := config.qops()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	unwatch := context.AfterFunc(ctx, func() { _ = nc.SetDeadline(time.Unix(1, 0)) }) // ends reads and writes
	c := &Conn{
		nc: nc, protocol: config.Protocol, clientID: make([]byte, 16), reader: bufio.NewReader(nc),
		calls: map[int32]chan<- response{}, done: make(chan struct{}),
	}
	_, _ = rand.Read(c.clientID) // never fails
	if err = c.handshake(config, qops); !unwatch() || err != nil {
		_ = nc.Close() // the first error is returned
		if ctx.Err() != nil {
			err = context.Cause(ctx) // the deadline interrupted a read or write
		}
		return nil, err
	}
	go c.read()
	return c, nil
}

// handshake starts the connection: version 9, no service class, and whether SASL follows.
func (c *Conn) handshake(config Config, qops []string) error {
	hello := []byte{'h', 'r', 'p', 'c', 9, 0, 0}
	if config.Token != nil {
		hello[6] = 0xDF
	}
	if _, err := c.nc.Write(hello); err != nil {
		return err
	}
	if config.Token != nil {
		err := c.authenticate(config.Token, qops)
		if _, answered := errors.AsType[*AnswerError](err); !answered &&
			(errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)) {
			err = &AnswerError{
				Err: errors.New("the server ended the connection: compare hadoop.rpc.protection in core-site.xml on the cluster " +
					"and here, and see the server's log"),
			}
		}
		if err != nil {
			return fmt.Errorf("authenticate with the token of kind %s: %w", config.Token.Kind, err)
		}
		if c.in != nil {
			c.reader = &unwrapReader{from: c.reader, in: c.in}
		}
	}
	frame, err := encodeFrame(contextCall, c.clientID, connectionContext(config.Protocol, config.User, config.Token))
	if err != nil {
		return err
	}
	return c.write(frame, time.Now().Add(dialLimit))
}

func (c *Conn) write(frame []byte, deadline time.Time) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	b, err := c.protect(frame)
	if err != nil {
		return err
	}
	if err := c.nc.SetWriteDeadline(deadline); err != nil {
		return err
	}
	_, err = c.nc.Write(b)
	return err
}

// read passes responses to pending calls until the connection ends.
func (c *Conn) read() {
	defer close(c.done)
	for {
		a, err := readFrame(c.reader)
		if err != nil {
			if _, answered := errors.AsType[*AnswerError](err); !answered {
				err = fmt.Errorf("the connection to the Hadoop server broke (check that the server runs): %w", err)
			}
			c.fail(err)
			return
		}
		if a.header.GetStatus() == yarnpb.RpcResponseHeader_FATAL {
			c.fail(a.exception())
			return
		}
		id := int32(a.header.GetCallId())
		c.mu.Lock()
		reply := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if reply != nil { // otherwise the call was canceled
			reply <- a
		}
	}
}

// fail ends the connection and every pending call.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	c.err = cmp.Or(c.err, err)
	for id, reply := range c.calls {
		close(reply)
		delete(c.calls, id)
	}
	c.mu.Unlock()
	_ = c.nc.Close() // ends read and write
}

// Call makes one call and decodes its response. It returns when the context ends, or after a minute. A
// server's exception is returned as a *RemoteError.
func (c *Conn) Call(ctx context.Context, method string, request, response proto.Message) error {
	if err := c.call(ctx, method, request, response); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (c *Conn) call(ctx context.Context, method string, request, response proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	id, reply, err := c.register()
	if err != nil {
		return err
	}
	frame, err := encodeFrame(id, c.clientID, &yarnpb.RequestHeader{
		MethodName: &method, DeclaringClassProtocolName: &c.protocol, ClientProtocolVersion: proto.Uint64(1),
	}, request)
	if err != nil {
		c.unregister(id)
		return err
	}
	deadline, _ := ctx.Deadline() // callLimit at the latest
	if err := c.write(frame, deadline); err != nil {
		c.fail(fmt.Errorf("send a call to the Hadoop server: %w", err)) // a part of it may have been sent
		return c.reason()
	}
	select {
	case a, ok := <-reply:
		if !ok {
			return c.reason()
		}
		if err := a.exception(); err != nil {
			return err
		}
		if err := a.decode(response); err != nil {
			return notHadoop("the server's answer is not Hadoop's (%w)", err)
		}
		return nil
	case <-ctx.Done():
		c.unregister(id)
		return context.Cause(ctx)
	}
}

func (c *Conn) register() (int32, <-chan response, error) {
	reply := make(chan response, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	id := c.next
	c.next = (c.next + 1) & 0x7FFFFFFF // negative numbers have special meanings
	c.calls[id] = reply
	return id, reply, nil
}

func (c *Conn) unregister(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// reason returns the error that ended the connection, or nil.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and the pending calls, and waits for the connection's goroutine.
func (c *Conn) Close() error {
	c.fail(errClosed)
	<-c.done
	return nil
}

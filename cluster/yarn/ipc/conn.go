package ipc

import (
	"bufio"
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

// Config says whom to call and as who.
type Config struct {
	Protocol string // the Java interface: org.apache.hadoop.yarn.api.ApplicationClientProtocolPB
	User     string // of simple authentication
	// Token proves who calls; nil for simple authentication.
	Token *credentials.Token
	// Protections are the wanted ones of hadoop.rpc.protection (authentication,
	// integrity, privacy), the first choice first; none leaves it to the server.
	Protections []string
}

// qops are SASL's names of the wanted protections.
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
			return nil, fmt.Errorf("hadoop.rpc.protection has %q: want authentication, integrity or privacy", p)
		}
	}
	return qops, nil
}

// Limits of what has no deadline by its context.
const (
	dialLimit = 10 * time.Second // to connect and authenticate
	callLimit = 60 * time.Second // for one call
)

// Conn is one connection for one protocol. Its first failure ends it.
type Conn struct {
	nc       net.Conn
	protocol string
	clientID []byte
	reader   io.Reader // of the goroutine read, after Dial
	in       *layer    // as reader; nil for none

	writing sync.Mutex // held for one frame, so that protected ones keep their order
	out     *layer     // guarded by writing; nil for none

	mu    sync.Mutex
	calls map[int32]chan<- answer // guarded by mu: those that wait
	next  int32                   // guarded by mu
	err   error                   // guarded by mu: why the connection has ended

	done chan struct{} // closed when read has returned
}

// errClosed is why a connection ended that Close ended.
var errClosed = errors.New("the connection is closed")

// Dial connects to host:port. The context is that of connecting alone.
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
		calls: map[int32]chan<- answer{}, done: make(chan struct{}),
	}
	if _, err = rand.Read(c.clientID); err == nil {
		err = c.greet(config, qops)
	}
	if !unwatch() || err != nil {
		_ = nc.Close() // it is of no use
		if ctx.Err() != nil {
			err = context.Cause(ctx) // which ended what was read or written
		}
		return nil, err
	}
	go c.read()
	return c, nil
}

// greet begins the connection: version 9, no service class, and whether SASL follows.
func (c *Conn) greet(config Config, qops []string) error {
	hello := []byte{'h', 'r', 'p', 'c', 9, 0, 0}
	if config.Token != nil {
		hello[6] = 0xDF
	}
	if _, err := c.nc.Write(hello); err != nil {
		return err
	}
	if config.Token != nil {
		if err := c.authenticate(config.Token, qops); err != nil {
			return fmt.Errorf("authenticate by the token of kind %s: %w", config.Token.Kind, err)
		}
		if c.in != nil {
			c.reader = &unprotected{from: c.reader, in: c.in}
		}
	}
	frame, err := encodeFrame(contextCall, c.clientID, introduction(config.Protocol, config.User, config.Token))
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

// read hands answers to the calls that wait, until the connection ends.
func (c *Conn) read() {
	defer close(c.done)
	for {
		a, err := readFrame(c.reader)
		if err != nil {
			c.fail(fmt.Errorf("the server ended the connection: %w", err))
			return
		}
		if a.header.GetStatus() == yarnpb.RpcResponseHeader_FATAL {
			c.fail(a.refusal())
			return
		}
		id := int32(a.header.GetCallId())
		c.mu.Lock()
		waits := c.calls[id]
		delete(c.calls, id)
		c.mu.Unlock()
		if waits != nil { // else its call was given up
			waits <- a
		}
	}
}

// fail ends the connection and every call that waits.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	for id, waits := range c.calls {
		close(waits)
		delete(c.calls, id)
	}
	c.mu.Unlock()
	_ = c.nc.Close() // ends read and write
}

// Call makes one call and reads its answer into response. It ends with its context,
// or after a minute. An exception of the server's is a *RemoteError.
func (c *Conn) Call(ctx context.Context, method string, request, response proto.Message) error {
	if err := c.call(ctx, method, request, response); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	return nil
}

func (c *Conn) call(ctx context.Context, method string, request, response proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	id, waits, err := c.register()
	if err != nil {
		return err
	}
	frame, err := encodeFrame(id, c.clientID, &yarnpb.RequestHeader{
		MethodName: &method, DeclaringClassProtocolName: &c.protocol, ClientProtocolVersion: proto.Uint64(1),
	}, request)
	if err != nil {
		c.forget(id)
		return err
	}
	deadline, _ := ctx.Deadline() // callLimit at the latest
	if err := c.write(frame, deadline); err != nil {
		c.fail(fmt.Errorf("send a call: %w", err)) // half of it may be on its way
		return c.reason()
	}
	select {
	case a, ok := <-waits:
		if !ok {
			return c.reason()
		}
		if err := a.refusal(); err != nil {
			return err
		}
		return a.message(response)
	case <-ctx.Done():
		c.forget(id)
		return context.Cause(ctx)
	}
}

func (c *Conn) register() (int32, <-chan answer, error) {
	waits := make(chan answer, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	id := c.next
	c.next = (c.next + 1) & 0x7FFFFFFF // negative ones have meanings
	c.calls[id] = waits
	return id, waits, nil
}

func (c *Conn) forget(id int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.calls, id)
}

// reason is why the connection has ended.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection and the calls that wait, and waits for its goroutine.
func (c *Conn) Close() error {
	c.fail(errClosed)
	<-c.done
	return nil
}

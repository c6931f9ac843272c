package ipc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
)

// Client calls a service that may be unreachable for a while or has several addresses.
type Client struct {
	addresses []string
	retryFor  time.Duration
	tryLimit  time.Duration // for one try

	mu      sync.Mutex
	config  Config // guarded by mu
	conn    *Conn  // guarded by mu; nil while there is none
	current int    // guarded by mu: index of the address in use
	closed  bool   // guarded by mu
}

// minTryLimit is how long a server may take to respond before a call is tried again, if retryFor is
// shorter: a machine that swaps may take a few seconds.
const minTryLimit = 15 * time.Second

// ErrUnreachable means that no call to any address of a service succeeded for a time, or was answered by an exception.
var ErrUnreachable = errors.New("no call succeeded")

// NewClient returns a client of the service at these addresses (host:port), of which one is active. It
// retries a call for retryFor, also after a lost response, so calls must be idempotent.
func NewClient(addresses []string, retryFor time.Duration, config Config) *Client {
	return &Client{
		addresses: addresses, retryFor: retryFor, tryLimit: min(max(retryFor, minTryLimit), callLimit), config: config,
	}
}

// Call calls the service. It returns when the context ends.
func (c *Client) Call(ctx context.Context, method string, request, response proto.Message) error {
	began := time.Now()
	end := began.Add(c.retryFor)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := c.try(ctx, method, request, response)
		if err == nil {
			return nil
		}
		if temporary := !Answered(err) || IsException(err, "StandbyException", "RetriableException"); !temporary {
			if conn != nil && conn.reason() != nil {
				c.drop(conn, err, false) // a fatal exception ended it
			}
			return err
		}
		c.drop(conn, err, true)
		if _, permanent := errors.AsType[*NegotiationError](err); permanent || ctx.Err() != nil {
			return err
		}
		if c.isClosed() || time.Now().Add(pause).After(end) {
			return fmt.Errorf("%w at %s within %s: %w", ErrUnreachable, strings.Join(c.addresses, ", "),
				max(c.retryFor, time.Since(began).Round(time.Second)), err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// try makes the call once. A server that accepts the call and does not respond, as after a network failure,
// is tried again with a new connection.
func (c *Client) try(ctx context.Context, method string, request, response proto.Message) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.tryLimit)
	defer cancel()
	conn, err := c.connect(ctx)
	if err == nil {
		err = conn.Call(ctx, method, request, response)
	}
	return conn, err
}

// isClosed reports whether Close was called, as opposed to a connection that SetConfig ended.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// connect returns the present connection, or connects.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock() // other calls wait for the same connection
	if c.closed {
		return nil, errClosed
	}
	if c.conn != nil && c.conn.reason() == nil {
		return c.conn, nil
	}
	conn, err := Dial(ctx, c.addresses[c.current%len(c.addresses)], c.config)
	if err != nil {
		c.current++
		return nil, err
	}
	c.conn = conn
	return conn, nil
}

// Open connects in advance, so that the next call need not wait. If it fails, the call connects.
func (c *Client) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.tryLimit)
	defer cancel()
	_, err := c.connect(ctx)
	return err
}

// drop closes a connection on which a call failed with err; the next one may use another address.
func (c *Client) drop(conn *Conn, err error, nextAddress bool) {
	if conn == nil {
		return
	}
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
		if nextAddress {
			c.current++
		}
	}
	c.mu.Unlock()
	why := err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		why = "it got no answer in time"
	}
	// The other calls are tried again.
	conn.fail(fmt.Errorf("the connection was closed, because another call on it failed: %s", why))
	_ = conn.Close() // never fails
}

// SetConfig sets the configuration of later calls, which use a new connection, for example after a token was
// renewed. Pending calls are made again.
func (c *Client) SetConfig(config Config) {
	c.mu.Lock()
	conn := c.conn
	c.config, c.conn = config, nil
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // never fails
	}
}

// Close ends the pending calls; later calls fail.
func (c *Client) Close() error {
	c.mu.Lock()
	conn := c.conn
	c.conn, c.closed = nil, true
	c.mu.Unlock()
	if conn != nil {
		return conn.Close()
	}
	return nil
}

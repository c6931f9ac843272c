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

// Client calls a service that may be away for a while, or at another of several
// addresses.
type Client struct {
	addresses []string
	bridge    time.Duration
	limit     time.Duration // of one try

	mu      sync.Mutex
	config  Config // guarded by mu
	conn    *Conn  // guarded by mu; nil while there is none
	current int    // guarded by mu: which address is tried
	closed  bool   // guarded by mu
}

// tryLimit is how long a server may be silent before a call is tried anew, unless there
// is more time for it: a machine that swaps may take a few seconds.
const tryLimit = 15 * time.Second

// ErrUnreachable says that no address of a service gave an answer.
var ErrUnreachable = errors.New("no answer")

// NewClient is a Client of the service at these addresses (host:port), of which one is
// active. It tries for bridge to reach it; what it calls must therefore bear to be
// called again after an answer that was lost.
func NewClient(addresses []string, bridge time.Duration, config Config) *Client {
	return &Client{addresses: addresses, bridge: bridge, limit: min(max(bridge, tryLimit), callLimit), config: config}
}

// Call calls the service. A context that ends ends it.
func (c *Client) Call(ctx context.Context, method string, request, response proto.Message) error {
	end := time.Now().Add(c.bridge)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := c.once(ctx, method, request, response)
		if err == nil {
			return nil
		}
		if passing := !Answered(err) || IsException(err, "StandbyException", "RetriableException"); !passing {
			if conn != nil && conn.reason() != nil {
				c.drop(conn, false) // a refusal that ended it
			}
			return err
		}
		c.drop(conn, true)
		if ctx.Err() != nil {
			return err
		}
		if c.isClosed() || time.Now().Add(pause).After(end) {
			return fmt.Errorf("%w from %s for %s: %w", ErrUnreachable, strings.Join(c.addresses, ", "), c.bridge, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// once tries it once. A server that takes a call and is silent, as one is behind a
// network that went away, is left for a new connection.
func (c *Client) once(ctx context.Context, method string, request, response proto.Message) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	conn, err := c.connect(ctx)
	if err == nil {
		err = conn.Call(ctx, method, request, response)
	}
	return conn, err
}

// isClosed is whether Close was called, as opposed to a connection's end by SetConfig.
func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// connect gives the connection there is, or another.
func (c *Client) connect(ctx context.Context) (*Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock() // others wait for the same connection
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

// Open makes the connection that the next call uses, so that it need not wait for that.
// Where this fails the call tries it again.
func (c *Client) Open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.limit)
	defer cancel()
	_, err := c.connect(ctx)
	return err
}

// drop ends a connection that failed; the next may go elsewhere.
func (c *Client) drop(conn *Conn, elsewhere bool) {
	if conn == nil {
		return
	}
	c.mu.Lock()
	if c.conn == conn {
		c.conn = nil
		if elsewhere {
			c.current++
		}
	}
	c.mu.Unlock()
	_ = conn.Close() // which does not fail
}

// SetConfig is for the calls from now on, which connect anew: after a token was
// replaced. Those that wait are made again.
func (c *Client) SetConfig(config Config) {
	c.mu.Lock()
	conn := c.conn
	c.config, c.conn = config, nil
	c.mu.Unlock()
	if conn != nil {
		_ = conn.Close() // which does not fail
	}
}

// Close ends the calls that wait and all later ones.
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

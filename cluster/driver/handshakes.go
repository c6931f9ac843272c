package driver

import (
	"net"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/internal/handshake"
)

// produce serves the producer of a feed that its certificate names. It takes the connection and returns at once.
type produce func(conn net.Conn, feed string)

// handshakeCredentials are the server's credentials, which know when a handshake has ended.
type handshakeCredentials struct {
	credentials.TransportCredentials
	pending *handshake.Limiter
	produce produce
}

// lost is when a producer's host that has vanished is given up: another attempt waits for its partition.
var lost = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 5 * time.Second, Count: 3}

// ServerHandshake implements credentials.TransportCredentials.
func (c *handshakeCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer c.pending.Done(conn) // one that failed has been closed
	secure, info, err := c.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	if feed := auth.ProducerFeed(info); feed != "" {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetKeepAliveConfig(lost) // else the system's
		}
		c.produce(secure, feed)
		return nil, nil, credentials.ErrConnDispatched
	}
	return secure, info, nil
}

// Clone implements credentials.TransportCredentials.
func (c *handshakeCredentials) Clone() credentials.TransportCredentials {
	return &handshakeCredentials{c.TransportCredentials.Clone(), c.pending, c.produce}
}

package hdfs

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/colinmarc/hdfs/v2"
	"github.com/colinmarc/hdfs/v2/hadoopconf"
)

// session is a client used by one operation at a time. It has separate connections, so that
// canceling an operation does not affect others.
type session struct {
	*hdfs.Client
	stall time.Duration
	umask fs.FileMode     // for new files and folders
	ctx   context.Context // for dials; canceled by abort
	abort context.CancelFunc

	mu    sync.Mutex
	conns map[*conn]struct{} // guarded by mu: the open connections
}

// dialLimit is the timeout of a connection to one NameNode or DataNode.
const dialLimit = 10 * time.Second

func newSession(ctx context.Context, c Config, nameNodes []string) (*session, error) {
	s := &session{stall: c.Stall, umask: c.umask, conns: map[*conn]struct{}{}}
	// The client outlives the operation that creates it.
	s.ctx, s.abort = context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(s.ctx, s.closeConns)
	defer context.AfterFunc(ctx, s.abort)()

	options := hdfs.ClientOptionsFromConf(hadoopconf.HadoopConf{
		"dfs.client.use.datanode.hostname": c.Conf.Get("dfs.client.use.datanode.hostname"),
		"dfs.data.transfer.protection":     c.Conf.Get("dfs.data.transfer.protection"),
		"dfs.encrypt.data.transfer":        c.Conf.Get("dfs.encrypt.data.transfer"),
	})
	options.Addresses, options.User = nameNodes, c.User
	options.NamenodeDialFunc, options.DatanodeDialFunc = s.dial, s.dial
	client, err := hdfs.NewClient(options)
	if err != nil {
		s.abort()
		return nil, err
	}
	s.Client = client
	return s, nil
}

// end closes the client and waits for the last call of its goroutine.
func (s *session) end() {
	s.abort()
	_ = s.Close() // the connections are closed already
}

func (s *session) closeConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Conn.Close() // unblocks their reads and writes
	}
}

// dial replaces the client's dialer. Its context is not the operation's, so it is ignored.
func (s *session) dial(_ context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialLimit}
	nc, err := d.DialContext(s.ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, session: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		_ = nc.Close() // aborted meanwhile
		return nil, errors.Join(net.ErrClosed, s.ctx.Err())
	}
	s.conns[c] = struct{}{}
	return c, nil
}

// conn sets a deadline for each read and write and closes itself at the first error, because a
// late answer could not be matched to a request. One goroutine may read while another one
// writes.
type conn struct {
	net.Conn
	session *session
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.session.stall)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	if err != nil {
		_ = c.Close() // the error of the read is more specific
	}
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.session.stall)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(b)
	if err != nil {
		_ = c.Close() // the error of the write is more specific
	}
	return n, err
}

func (c *conn) Close() error {
	c.session.mu.Lock()
	delete(c.session.conns, c)
	c.session.mu.Unlock()
	return c.Conn.Close()
}

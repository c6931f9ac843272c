package group

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/handshake"
	"github.com/tfcluster/tfcluster/internal/unixsock"
	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// Config describes a member.
type Config struct {
	Run, Attempt int32
	Task         string // "worker:1"
	Host         string // equal for agents that can reach each other by unix sockets
	Socket       string // path of the socket, in a private folder
	Memory       int64  // bytes for one vector
	Address      string // address of this host, for members of other hosts
	TLS          *tls.Config
	Client       clusterpb.GroupsClient
	Log          *slog.Logger
	// RDMA is the port for links to other hosts; nil: TCP.
	RDMA *transport.VerbsSettings
	Note func(text string) // reports a text to the user
}

// DefaultMemory is the size of a vector in bytes. The memory of a member has room for three vectors.
const DefaultMemory = 16 << 20

// Member is a task's part in its group. Open makes it; it ends with Close.
type Member struct {
	config Config
	key    string // of the task
	own    *memory.Mapping
	listeners
	ways   ways                    // opened and closed by join
	cancel context.CancelCauseFunc // ends the member's part in the group
	work   sync.WaitGroup

	arrived chan arrival // connections of other members

	mu sync.Mutex
	// guarded by mu
	joined
	calls
	absent
	known   string        // the group's key, after all have joined
	over    string        // why the group is over
	changed chan struct{} // closed and replaced at each change
}

// absent has the members for which this one waits.
type absent struct {
	missing  string   // their names, and what they have not done
	unlinked []string // the neighbours to which it is not connected yet
}

// calls has the number and the state of the program's calls.
type calls struct {
	begun   uint64
	calling bool // the last call has not ended
}

// listeners accept connections until Close. A program that connects after the group's end receives the reason.
type listeners struct {
	local   net.Listener       // for the program and members of this host
	remote  net.Listener       // for members of other hosts, mTLS
	pending *handshake.Limiter // connections of remote without a first line yet
	end     context.CancelFunc
}

// joined is the group to which a member belongs.
type joined struct {
	group *collective.Group // nil: not all have joined
	cfg   collective.Config // of the group
}

// arrival is a connection that another member has made.
type arrival struct {
	rank int
	conn net.Conn
}

// Open makes the memory and the sockets, and joins the group.
func Open(ctx context.Context, cfg Config) (*Member, error) {
	cfg.Memory = cmp.Or(cfg.Memory, DefaultMemory)
	seg, err := memory.New("tfcluster-group", collective.Layout(cfg.Memory)...)
	if err != nil {
		return nil, fmt.Errorf("the executor of %s cannot make the shared memory of collective calls: %w", cfg.Task, err)
	}
	own, err := seg.Map()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the executor of %s cannot make the shared memory of collective calls: %w",
			cfg.Task, err), seg.Close())
	}
	m := &Member{config: cfg, key: rand.Text(), own: own, arrived: make(chan arrival), changed: make(chan struct{})}
	m.pending = handshake.NewLimiter(handshake.AtOnce(), handshake.Minimum)
	unixsock.Sweep(filepath.Join(filepath.Dir(cfg.Socket), "group-*.sock")) // left by agents that were killed
	if m.local, err = unixsock.Listen(cfg.Socket); err == nil {
		var port net.Listener
		if port, err = net.Listen("tcp", net.JoinHostPort(cfg.Address, "0")); err == nil {
			m.remote = tls.NewListener(m.pending.Listen(port), cfg.TLS)
		} else {
			_ = m.local.Close()
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the sockets for collective calls of %s: %w", cfg.Task, err), own.Close(),
			seg.Close())
	}
	open, end := context.WithCancel(ctx)
	m.end = end
	ctx, m.cancel = context.WithCancelCause(open)
	m.work.Go(func() { m.accept(open, ctx, m.local) })
	m.work.Go(func() { m.accept(open, ctx, m.remote) })
	m.work.Go(func() { m.cancel(m.join(ctx)) })
	return m, nil
}

// Socket returns the path of the socket and the key with which the task's program connects.
func (m *Member) Socket() (path, key string) { return m.config.Socket, m.key }

// ProgramEnded leaves the group.
func (m *Member) ProgramEnded() { m.cancel(fmt.Errorf("%s has ended", m.config.Task)) }

// Close leaves the group and frees the memory.
func (m *Member) Close() {
	m.ProgramEnded()
	m.end()
	m.work.Wait()
	_ = m.own.Close()
	_ = m.own.Segment().Close()
}

// acceptAgain is the pause before a listener accepts again after an error: the process may have had no free
// descriptor.
const acceptAgain = 100 * time.Millisecond

// accept serves connections until open ends; ctx ends with the group.
func (m *Member) accept(open, ctx context.Context, ln net.Listener) {
	stop := context.AfterFunc(open, func() { _ = ln.Close() })
	defer stop()
	for {
		conn, err := ln.Accept()
		if err == nil {
			m.work.Go(func() { m.serve(open, ctx, conn) })
			continue
		}
		select {
		case <-time.After(acceptAgain):
		case <-open.Done():
			return
		}
	}
}

// serve handles a connection of the program or of another member.
func (m *Member) serve(open, ctx context.Context, conn net.Conn) {
	stop := context.AfterFunc(open, func() { _ = conn.SetDeadline(time.Now()) })
	defer func() { stop() }()
	_ = conn.SetDeadline(time.Now().Add(handshake.Timeout))
	first, err := readHello(conn)
	if secure, ok := conn.(*tls.Conn); ok {
		m.pending.Done(secure.NetConn())
	}
	_ = conn.SetDeadline(time.Time{})
	if err != nil && open.Err() == nil {
		m.config.Log.Warn("a connection for collective calls was refused; the tasks go on", "task", m.config.Task,
			"error", err)
	}
	if err != nil || open.Err() != nil { // the deadline of its end may have been removed just now
		_ = conn.Close()
		return
	}
	switch socket, isUnix := conn.(*net.UnixConn); {
	case first.Op == "open" && isUnix && equalKeys(first.Key, m.key):
		stop() // the program is informed why the group is over
		stop = context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })
		m.serveProgram(ctx, socket)
		_ = conn.Close()
	case first.Op == "peer" && m.isMember(ctx, first.Key):
		select {
		case m.arrived <- arrival{first.Rank, conn}: // the link owns conn from now on
		case <-ctx.Done():
			_ = conn.Close()
		}
	default:
		_ = conn.Close()
	}
}

// isMember waits until this member knows the group's key, and reports whether key is the same.
func (m *Member) isMember(ctx context.Context, key string) bool {
	limited, cancel := context.WithTimeout(ctx, handshake.Timeout)
	defer cancel()
	for {
		m.mu.Lock()
		known, changed := m.known, m.changed
		m.mu.Unlock()
		if known != "" {
			return equalKeys(key, known)
		}
		select {
		case <-changed:
		case <-limited.Done():
			return false
		}
	}
}

// equalKeys reports whether two secrets are equal, in constant time.
func equalKeys(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// wake wakes all goroutines that wait for a change. Caller holds mu.
func (m *Member) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

// await returns the group, for which it waits for timeout at most. ctx ends with the member.
func (m *Member) await(ctx context.Context, timeout time.Duration) (*collective.Group, error) {
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	for {
		m.mu.Lock()
		group, missing, changed := m.group, cmp.Or(m.missing, "the driver did not answer"), m.changed
		m.mu.Unlock()
		if group != nil {
			return group, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit.C:
			return nil, fmt.Errorf("%s within %v", missing, timeout)
		}
	}
}

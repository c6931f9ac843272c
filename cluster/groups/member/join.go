package member

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// connectTimeout is the time in which members that have all joined connect to each other.
const connectTimeout = 30 * time.Second

// leaving is the time in which a call may end after a member has left: the member had its result before.
const leaving = 10 * time.Second

// join joins the group and connects to its members; it returns why the group is over.
func (m *Member) join(ctx context.Context) error {
	stream, err := m.config.Client.Join(ctx, &clusterpb.GroupMember{
		Run: m.config.Run, Attempt: m.config.Attempt, Task: m.config.Task, Host: m.config.Host, Socket: m.config.Socket, Address: m.remote.Addr().String(),
	})
	if err != nil {
		return fmt.Errorf("join the group of run %d: %w", m.config.Run, err)
	}
	var group *collective.Group
	defer func() {
		if group != nil {
			group.Close()
		}
	}()
	for {
		u, err := stream.Recv()
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("the group of run %d has lost the driver: %w", m.config.Run, err)
		case u.GetLeft() != "":
			select {
			case <-time.After(leaving):
			case <-ctx.Done():
			}
			return fmt.Errorf("%s has left the group", u.GetLeft())
		case len(u.GetMembers()) > 0:
			if group, err = m.connect(ctx, u.GetMembers(), u.GetKey()); err != nil {
				return err
			}
		default:
			m.mu.Lock()
			m.missing = u.GetMissing()
			m.wake()
			m.mu.Unlock()
		}
	}
}

// connect makes the links of this rank, and its group.
func (m *Member) connect(ctx context.Context, members []*clusterpb.GroupMember, key string) (*collective.Group, error) {
	cfg := collective.Config{Own: m.own, Peers: map[int]collective.Peer{}}
	for rank, member := range members {
		cfg.Names = append(cfg.Names, member.GetTask())
		if member.GetTask() == m.config.Task {
			cfg.Rank = rank
		}
		host := slices.IndexFunc(cfg.Hosts, func(ranks []int) bool { return members[ranks[0]].GetHost() == member.GetHost() })
		if host < 0 {
			cfg.Hosts = append(cfg.Hosts, []int{rank})
		} else {
			cfg.Hosts[host] = append(cfg.Hosts[host], rank)
		}
	}
	m.mu.Lock()
	m.known, m.missing = key, nil
	m.wake()
	m.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout, fmt.Errorf("the members of the group did not connect within %v", connectTimeout))
	defer cancel()
	if err := m.link(ctx, members, key, &cfg); err != nil {
		return nil, err
	}
	group, err := collective.New(cfg)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = joined{group, cfg}
	m.wake()
	return group, nil
}

// neighbours returns the ranks to which a rank has links: those of its host and, for a leader, the leaders beside it.
func neighbours(rank int, hosts [][]int) []int {
	var all []int
	for h, ranks := range hosts {
		if !slices.Contains(ranks, rank) {
			continue
		}
		all = append(all, ranks...)
		if rank == ranks[0] {
			all = append(all, hosts[(h+1)%len(hosts)][0], hosts[(h+len(hosts)-1)%len(hosts)][0])
		}
	}
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(r int) bool { return r == rank })
}

// link connects to the ranks below this one, and waits for the connections of those above.
func (m *Member) link(ctx context.Context, members []*clusterpb.GroupMember, key string, cfg *collective.Config) error {
	type linked struct {
		rank int
		link transport.Link
	}
	var waiting []int
	links := make(chan linked, len(members))
	work, ctx := errgroup.WithContext(ctx)
	connect := func(rank int, conn net.Conn) {
		work.Go(func() error {
			var provider transport.Provider = transport.TCP{}
			if _, local := conn.(*net.UnixConn); local {
				provider = transport.SharedMemory{}
			}
			l, err := provider.Connect(ctx, conn, m.own)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", members[rank].GetTask(), err)
			}
			links <- linked{rank, l}
			return nil
		})
	}
	for _, rank := range neighbours(cfg.Rank, cfg.Hosts) {
		if rank > cfg.Rank {
			waiting = append(waiting, rank)
			continue
		}
		work.Go(func() error {
			conn, err := m.dial(ctx, members[rank], key, cfg.Rank)
			if err != nil {
				return fmt.Errorf("connect to %s: %w", members[rank].GetTask(), err)
			}
			connect(rank, conn)
			return nil
		})
	}
	work.Go(func() error {
		for len(waiting) > 0 {
			select {
			case a := <-m.arrived:
				if at := slices.Index(waiting, a.rank); at >= 0 {
					waiting = slices.Delete(waiting, at, at+1)
					connect(a.rank, a.conn)
				} else {
					_ = a.conn.Close() // not a neighbour
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	err := work.Wait()
	close(links)
	for l := range links {
		if err != nil {
			_ = l.link.Close()
			continue
		}
		cfg.Peers[l.rank] = collective.Peer{Link: l.link, Memory: transport.Mapped(l.link)}
	}
	return err
}

// dial connects to another member and says who calls.
func (m *Member) dial(ctx context.Context, to *clusterpb.GroupMember, key string, rank int) (conn net.Conn, err error) {
	if to.GetHost() == m.config.Host {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", to.GetSocket())
	} else {
		own := m.config.TLS.Clone()
		own.ServerName = to.GetExecutor()
		conn, err = (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", to.GetAddress())
	}
	if err != nil {
		return nil, err
	}
	line, err := json.Marshal(hello{Op: "peer", Key: key, Rank: rank})
	if err == nil {
		_, err = conn.Write(append(line, '\n'))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

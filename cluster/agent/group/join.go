package group

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/rdma/collective"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// connectTimeout is the time in which the members connect to each other, after all have joined.
const connectTimeout = 30 * time.Second

// leaving is the time in which a call may end after a member has left: the member had its result before it left.
const leaving = 10 * time.Second

// reporting is the time that the driver has to answer a report.
const reporting = 5 * time.Second

// join joins the group, connects to its members and follows the driver's updates. It returns why the group is over.
func (m *Member) join(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var work sync.WaitGroup
	err := m.follow(ctx, &work)
	m.mu.Lock()
	m.over = err.Error() // before the driver is informed that this member leaves, and answers it no more
	m.mu.Unlock()
	cancel(err)
	work.Wait()
	m.mu.Lock()
	group := m.group
	m.mu.Unlock()
	if group != nil {
		group.Close()
	}
	m.ways.close(m.config.Log)
	return err
}

// follow is join without its end. What it begins ends with ctx.
func (m *Member) follow(ctx context.Context, work *sync.WaitGroup) error {
	stream, err := m.config.Client.Join(ctx, &clusterpb.GroupMember{
		Run: m.config.Run, Attempt: m.config.Attempt, Task: m.config.Task, Host: m.config.Host, Socket: m.config.Socket,
		Address: m.remote.Addr().String(),
	})
	if err != nil {
		return clusterpb.Lost(m.config.Task, err)
	}
	updates, failed := make(chan *clusterpb.GroupUpdate), make(chan error, 2)
	work.Go(func() {
		for {
			u, err := stream.Recv()
			if err != nil {
				failed <- clusterpb.Lost(m.config.Task, err)
				return
			}
			select {
			case updates <- u:
			case <-ctx.Done():
				return
			}
		}
	})
	var left <-chan time.Time // when to check what follows from the leaving of leaver
	var until time.Time
	for leaver, formed := "", false; ; {
		select {
		case u := <-updates:
			switch {
			case u.GetOver() != "":
				return errors.New(u.GetOver())
			case u.GetLeft() != "" && !formed:
				return fmt.Errorf("%s has left the group", u.GetLeft())
			case u.GetLeft() != "" && leaver == "":
				leaver, until, left = u.GetLeft(), time.Now().Add(leaving), time.After(0)
			case len(u.GetMembers()) > 0 && !formed:
				formed = true
				work.Go(func() {
					if err := m.connect(ctx, u.GetMembers(), u.GetKey()); err != nil {
						failed <- errors.New(m.why(ctx, err))
					}
				})
			case len(u.GetMissing()) > 0 && u.GetLeft() == "":
				m.expect("made no collective call", u.GetMissing())
			}
			if u.GetAsks() {
				work.Go(func() { m.progress(ctx) })
			}
		case err := <-failed:
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		case <-left:
			if m.waitsFor(leaver) { // it cannot have had a result
				return errors.New(m.why(ctx, &collective.LostError{Name: leaver, Err: errors.New("it ended before it connected")}))
			}
			if time.Now().After(until) {
				return fmt.Errorf("%s has left the group", leaver)
			}
			left = time.After(50 * time.Millisecond) // connecting may begin only now
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waitsFor reports whether a member has yet to connect to this one.
func (m *Member) waitsFor(task string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Contains(m.unlinked, task)
}

// expect records the tasks for which this member waits, and what they have not done.
func (m *Member) expect(what string, tasks []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.missing = strings.Join(tasks, ", ") + " " + what
	m.wake()
}

// progress reports the program's progress to the driver.
func (m *Member) progress(ctx context.Context) {
	m.mu.Lock()
	p := &clusterpb.GroupProgress{
		Run: m.config.Run, Attempt: m.config.Attempt, Task: m.config.Task, Calls: m.begun, Calling: m.calling,
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, reporting)
	defer cancel()
	if _, err := m.config.Client.Progress(ctx, p); err != nil {
		m.config.Log.Warn("the driver did not take a report about collective calls; they go on, "+
			"but an error about a late call may not name this task", "task", m.config.Task, "error", clusterpb.Plain(err))
	}
}

// why returns why the group is over, after a call of this member has failed. The driver decides that for all members.
func (m *Member) why(ctx context.Context, err error) string {
	f := &clusterpb.GroupFailure{Run: m.config.Run, Attempt: m.config.Attempt, Task: m.config.Task, Reason: err.Error()}
	var late *collective.LateError
	var lost *collective.LostError
	switch {
	case invalid(err):
		f.Reason = errtext.AsFault(err).Error()
	case errors.As(err, &late):
		f.Late, f.What, f.Waits, f.Reason = true, late.Call.String(), late.Waits, late.Err.Error()
	case errors.As(err, &lost):
		f.Lost, f.Reason = lost.Name, lost.Err.Error()
	}
	m.mu.Lock()
	over := m.over
	f.Call = m.begun
	m.mu.Unlock()
	if over != "" {
		return over
	}
	limited, cancel := context.WithTimeout(ctx, reporting)
	defer cancel()
	answer, failed := m.config.Client.Fail(limited, f)
	if failed == nil && answer.GetReason() != "" {
		return answer.GetReason()
	}
	if failed != nil && ctx.Err() == nil {
		m.config.Log.Warn("the driver did not take the report of a failed collective call, as when the run was ended "+
			"before; %tfcluster status shows the first cause", "task", m.config.Task, "error", clusterpb.Plain(failed))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return cmp.Or(m.over, err.Error())
}

// connect makes the links and the group of this rank.
func (m *Member) connect(ctx context.Context, members []*clusterpb.GroupMember, key string) error {
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
	m.known = key
	m.wake()
	m.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, connectTimeout,
		fmt.Errorf("it did not connect within %v", connectTimeout))
	defer cancel()
	if err := m.link(ctx, members, key, &cfg); err != nil {
		return err
	}
	group, err := collective.New(cfg)
	if err != nil {
		return errtext.AsFault(err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.joined = joined{group, cfg}
	m.wake()
	return nil
}

// neighbours returns the ranks to which a rank has links: the ranks of its host and, for a leader, the leaders of the
// next and of the previous host.
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

// link connects to the neighbours of a lower rank, and waits for the connections of those of a higher rank.
func (m *Member) link(ctx context.Context, members []*clusterpb.GroupMember, key string, cfg *collective.Config) error {
	type linked struct {
		rank int
		link transport.Link
	}
	if err := m.ways.open(m.config, m.own, cfg); err != nil {
		return err
	}
	var waiting []int
	links := make(chan linked, len(members))
	var mu sync.Mutex
	unlinked := neighbours(cfg.Rank, cfg.Hosts)
	isLinked := func(rank int) {
		mu.Lock()
		defer mu.Unlock()
		unlinked = slices.DeleteFunc(unlinked, func(r int) bool { return r == rank })
		m.mu.Lock()
		m.unlinked = names(unlinked, cfg.Names)
		m.mu.Unlock()
		m.expect("did not connect", names(unlinked, cfg.Names))
	}
	isLinked(cfg.Rank)
	work, ctx := errgroup.WithContext(ctx)
	failed := func(rank int, err error) error {
		// The cause of ctx is clearer than the i/o timeout that it makes of a connection.
		return &collective.LostError{Name: cfg.Names[rank], Err: cmp.Or(context.Cause(ctx), err)}
	}
	connect := func(rank int, conn net.Conn) {
		work.Go(func() error {
			l, err := m.ways.connect(ctx, m.config, conn, cfg.Names[rank])
			if err != nil {
				return failed(rank, err)
			}
			isLinked(rank)
			links <- linked{rank, l}
			return nil
		})
	}
	for _, rank := range slices.Clone(unlinked) {
		if rank > cfg.Rank {
			waiting = append(waiting, rank)
			continue
		}
		work.Go(func() error {
			conn, err := m.dial(ctx, members[rank], key, cfg.Rank)
			if err != nil {
				return failed(rank, err)
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
				return failed(waiting[0], context.Cause(ctx))
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

// names returns the names of ranks.
func names(ranks []int, all []string) []string {
	var some []string
	for _, rank := range ranks {
		some = append(some, all[rank])
	}
	return some
}

// dial connects to another member and sends it this member's rank.
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

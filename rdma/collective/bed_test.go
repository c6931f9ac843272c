package collective

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/rdma/memory"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// longest is the longest time that a test waits for something that must happen.
const longest = 2 * time.Minute

// member is a rank of a test: its group, and the memory that its program would use.
type member struct {
	*Group
	rank  int
	own   *memory.Mapping
	conns map[int]net.Conn // to other ranks
	// regions are the own memory as the providers know it.
	regions []*transport.Region
}

// realDevice is the variable with an RDMA device of this host for the tests: the guest of make test-rdma sets it.
const realDevice = "TFCLUSTER_TEST_RDMA"

// byRDMA is the network between hosts that has RDMA: the stub's, or that of this host's device.
const byRDMA = "rdma"

// groups returns the ranks of a group on hosts that are all this one, with TCP between them.
func groups(t testing.TB, slotSize int64, hosts ...[]int) []*member {
	t.Helper()
	return groupsOver(t, "tcp", slotSize, hosts...)
}

// groupsOver is groups with another network between hosts: "tcp", "tls" or "rdma".
func groupsOver(t testing.TB, between string, slotSize int64, hosts ...[]int) []*member {
	t.Helper()
	var remote transport.Provider = transport.TCP{}
	network := between
	if between == byRDMA {
		remote, network = openVerbs(t), "tcp"
	}
	n := 0
	for _, ranks := range hosts {
		n += len(ranks)
	}
	members := make([]*member, n)
	configs := make([]Config, n)
	for rank := range members {
		s, err := memory.New("tfcluster-collective-test", Layout(slotSize)...)
		if err != nil {
			t.Fatal(err)
		}
		own, err := s.Map()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { own.Close(); s.Close() })
		members[rank] = &member{rank: rank, own: own, conns: map[int]net.Conn{}}
		configs[rank] = Config{Rank: rank, Hosts: hosts, Own: own, Peers: map[int]Peer{}}
		for r := range n {
			configs[rank].Names = append(configs[rank].Names, fmt.Sprintf("worker:%d", r))
		}
	}
	var mu sync.Mutex // of the members' regions
	connect := func(a, b int, p transport.Provider, network string) {
		if configs[a].Peers[b].Link != nil || a == b {
			return
		}
		conns := pair(t, network)
		members[a].conns[b], members[b].conns[a] = conns[0], conns[1]
		var work sync.WaitGroup
		ends := [2]int{a, b}
		links := [2]transport.Link{}
		for i, conn := range conns {
			work.Go(func() {
				region, err := p.Register(configs[ends[i]].Own)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				members[ends[i]].regions = append(members[ends[i]].regions, region)
				mu.Unlock()
				if links[i], err = p.Connect(t.Context(), conn, region); err != nil {
					t.Error(err)
				}
			})
		}
		if work.Wait(); t.Failed() {
			t.FailNow()
		}
		configs[a].Peers[b] = Peer{links[0], transport.Mapped(links[0])}
		configs[b].Peers[a] = Peer{links[1], transport.Mapped(links[1])}
	}
	for h, ranks := range hosts {
		for i, a := range ranks {
			for _, b := range ranks[:i] {
				connect(a, b, transport.SharedMemory{}, "unix")
			}
		}
		connect(ranks[0], hosts[(h+1)%len(hosts)][0], remote, network)
	}
	for rank, m := range members {
		g, err := New(configs[rank])
		if err != nil {
			t.Fatal(err)
		}
		m.Group = g
		t.Cleanup(func() {
			g.Close()
			for _, r := range m.regions {
				if err := r.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	return members
}

// pair returns the two ends of a connection.
func pair(t testing.TB, network string) [2]net.Conn {
	t.Helper()
	if network == "tls" {
		ends, secure := pair(t, "tcp"), identity(t)
		return [2]net.Conn{tls.Client(ends[0], secure), tls.Server(ends[1], secure)}
	}
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "collective")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		address = filepath.Join(dir, "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	dialled, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return [2]net.Conn{dialled, accepted}
}

// identity is both ends' part in mutual TLS.
func identity(t testing.TB) *tls.Config {
	t.Helper()
	authority, err := auth.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	certPEM, keyPEM, err := authority.Issue("rank")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.CertPEM)
	return &tls.Config{
		Certificates: []tls.Certificate{pair}, RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		ServerName: "rank", MinVersion: tls.VersionTLS13,
	}
}

// call does what a program does: it writes its vector, makes the call and reads the result.
func (m *member) call(ctx context.Context, all []*member, call Call, vector []byte) ([]byte, error) {
	err := m.own.Use(func(slots [][]byte) error {
		copy(slots[m.Next()], vector)
		return nil
	})
	if err != nil {
		return nil, err
	}
	parts, err := m.Run(ctx, call)
	if err != nil {
		return nil, err
	}
	var result []byte
	for _, p := range parts {
		err := all[p.Rank].own.Use(func(slots [][]byte) error {
			result = append(result, slots[p.Slot][p.Offset:p.Offset+p.Size]...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return result, nil
}

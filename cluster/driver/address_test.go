package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// roaming is an engine of a host that changes its network, and its allocation.
type roaming struct {
	cluster.Allocation
	told chan string

	mu sync.Mutex
	at string // guarded by mu
}

func (r *roaming) Allocate(context.Context, cluster.Request) (cluster.Allocation, error) {
	return r, nil
}

func (r *roaming) Recover(context.Context, cluster.Request, []byte) (cluster.Allocation, error) {
	return nil, errors.New("nothing was saved")
}
func (r *roaming) ID() string                   { return "roaming-1" }
func (r *roaming) Events() <-chan cluster.Event { return nil }
func (r *roaming) Saved() []byte                { return nil }
func (r *roaming) Release(context.Context, cluster.FinalStatus, string) error {
	return nil
}
func (r *roaming) InitialStatus(*clusterpb.ReserveRequest) string { return "it is asked" }
func (r *roaming) FailureDetectionDelay() time.Duration           { return 0 }

func (r *roaming) Advertise(context.Context, *clusterpb.ReserveRequest) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at, nil
}

func (r *roaming) PublishAddress(_ context.Context, address string) error {
	r.told <- address
	return nil
}

// TestRoams: agents are told of each address of this host's, at which the driver listens
// once, however often the host comes back to it.
func TestRoams(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	authority, err := auth.NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	const home, away = "127.0.0.1", "127.0.0.2"
	r := &roaming{told: make(chan string), at: home}
	d := &driver{
		log: slog.New(slog.DiscardHandler),
		clusterRequest: clusterRequest{engine: cluster.Engine{Backend: r}, req: &clusterpb.ReserveRequest{
			Backend: "roaming", Roles: []*clusterpb.Role{{Name: "worker", Count: 1}},
		}},
		listeners: listeners{bind: home, address: home + ":0"},
	}
	d.coord = coordinator.New(coordinator.Config{
		Name: "test", Request: d.req, Authority: authority, StateDir: t.TempDir(),
		Directory: coordinator.Directory{Dir: t.TempDir()}, Backend: r, Address: d.address,
	})
	ctx, leave := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer leave()
	work.Go(func() { _ = d.coord.Run(ctx) })
	listens := make(chan net.Listener, 8)
	work.Go(func() { d.watchAddress(ctx, time.Millisecond, func(ln net.Listener) { listens <- ln }) })
	var first string
	for i, host := range []string{away, home, away, home} {
		r.mu.Lock()
		r.at = host
		r.mu.Unlock()
		var told string
		select {
		case told = <-r.told:
		case <-ctx.Done():
			t.Fatalf("nobody is told of %s", host)
		}
		if i == 0 {
			first = told
			(<-listens).Close()
		}
		if want := map[string]string{home: d.address, away: first}[host]; told != want {
			t.Errorf("at %s agents are told of %s, want %s", host, told, want)
		}
	}
	if n := len(listens); n != 0 {
		t.Errorf("it listens %d times more", n)
	}
}

// TestListens: a driver that takes over listens where its predecessor did; where another
// does by now, on one of the ports that were named, or, where none were, on any.
func TestListens(t *testing.T) {
	t.Parallel()
	other, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	taken := other.Addr().(*net.TCPAddr).Port
	ports := func(most int) string { return fmt.Sprintf("127.0.0.1:%d-%d", taken, taken+most) }
	for _, tt := range []struct {
		advertise   string
		old         bool
		least, most int // the port; 0: none
	}{
		{"", true, 1, math.MaxUint16},
		{ports(200), true, taken + 1, taken + 200},
		{ports(200), false, taken + 1, taken + 200},
		{ports(0), true, 0, 0},
		{fmt.Sprintf("127.0.0.1:%d", taken), true, 0, 0},
	} {
		d := &driver{clusterRequest: clusterRequest{req: &clusterpb.ReserveRequest{Advertise: tt.advertise}}}
		if tt.old {
			d.old = &state.State{Address: fmt.Sprintf("127.0.0.1:%d", taken)}
		}
		err := d.listen()
		if tt.most == 0 {
			if err == nil || !strings.Contains(err.Error(), "--advertise "+tt.advertise) {
				t.Errorf("%q: it listens at %s: %v", tt.advertise, d.address, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tt.advertise, err)
			continue
		}
		if port := d.agents.Addr().(*net.TCPAddr).Port; port == taken || port < tt.least || port > tt.most {
			t.Errorf("%q: it listens at %s", tt.advertise, d.address)
		}
		d.agents.Close()
	}
}

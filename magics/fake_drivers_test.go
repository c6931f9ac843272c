package magics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

// fakeDrivers is a Connector over fakeClusters.
type fakeDrivers struct {
	t    testing.TB
	prep func(*fakeCluster) // before a launched cluster answers

	mu sync.Mutex
	// guarded by mu
	clusters map[string]*fakeCluster
	dead     map[string]bool
	silent   map[string]bool
	hosted   bool
	order    []string
}

func newFakeDrivers(t testing.TB) *fakeDrivers {
	return &fakeDrivers{t: t, clusters: map[string]*fakeCluster{}, dead: map[string]bool{}, silent: map[string]bool{}}
}

func (d *fakeDrivers) add(req *clusterpb.ReserveRequest) *fakeCluster {
	f := &fakeCluster{
		request: req, protocol: clusterpb.Protocol, stopped: make(chan struct{}), over: make(chan struct{}),
		news: make(chan struct{}),
	}
	if d.prep != nil {
		d.prep(f)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clusters[req.GetName()] = f
	d.order = append(d.order, req.GetName())
	return f
}

func (d *fakeDrivers) get(name string) *fakeCluster {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.clusters[name]
}

func (d *fakeDrivers) Launch(_ context.Context,
	req *clusterpb.ReserveRequest,
) (string, clusterpb.ControlClient, error) {
	if req.GetPython() == "/no/python" {
		return "", nil, errors.New("there is no /no/python")
	}
	d.add(req)
	c, err := d.Dial(context.Background(), req.GetName())
	return req.GetName(), c, err
}

func (d *fakeDrivers) Dial(_ context.Context, name string) (clusterpb.ControlClient, error) {
	d.mu.Lock()
	f, dead, silent := d.clusters[name], d.dead[name], d.silent[name]
	d.mu.Unlock()
	switch {
	case f == nil:
		return nil, fmt.Errorf("read state of cluster %s: %w", name, os.ErrNotExist)
	case dead:
		return nil, client.ErrNoDriver
	case silent:
		return nil, fmt.Errorf("connect to cluster %s: %w", name,
			status.Error(codes.DeadlineExceeded, context.DeadlineExceeded.Error()))
	}
	lis := bufconn.Listen(1 << 16)
	srv := grpc.NewServer(f.interceptors()...)
	clusterpb.RegisterControlServer(srv, f)
	served := make(chan struct{})
	go func() {
		defer close(served)
		if err := srv.Serve(lis); err != nil {
			d.t.Errorf("serve: %v", err)
		}
	}()
	d.t.Cleanup(func() { srv.Stop(); <-served })
	conn, err := grpc.NewClient("passthrough:///fake", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	d.t.Cleanup(func() { _ = conn.Close() })
	return clusterpb.NewControlClient(conn), nil
}

func (d *fakeDrivers) List(context.Context) ([]session.ClusterInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var infos []session.ClusterInfo
	for _, n := range d.order {
		select {
		case <-d.clusters[n].over:
			continue
		default:
		}
		infos = append(infos, session.ClusterInfo{
			Name: n, Backend: "local", Owner: d.clusters[n].request.GetOwner(), Live: !d.dead[n], Hosted: d.hosted, PID: 4711,
		})
	}
	return infos, nil
}

func (d *fakeDrivers) Kill(_ context.Context, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.silent, name)
	d.dead[name] = true
	return nil
}

func (d *fakeDrivers) Recover(ctx context.Context, name string) (clusterpb.ControlClient, error) {
	d.mu.Lock()
	delete(d.dead, name)
	d.mu.Unlock()
	return d.Dial(ctx, name)
}

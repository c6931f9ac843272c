package proxy

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// releasedDriver reports each Shutdown that it receives, and answers none; nor does it answer Status.
type releasedDriver struct {
	clusterpb.UnimplementedControlServer
	asked chan struct{}
}

func (d releasedDriver) Shutdown(_ *clusterpb.ShutdownRequest,
	s grpc.ServerStreamingServer[clusterpb.ShutdownUpdate],
) error {
	d.asked <- struct{}{}
	<-s.Context().Done()
	return s.Context().Err()
}

func (d releasedDriver) Status(ctx context.Context, _ *clusterpb.StatusRequest) (*clusterpb.ClusterStatus, error) {
	d.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// released returns a proxy, a client of it, and a function that connects it to a new driver.
func released(t *testing.T) (*Proxy, clusterpb.ControlClient, func() releasedDriver) {
	p := &Proxy{
		cfg:  Config{Request: &clusterpb.ReserveRequest{}},
		link: link{changed: make(chan struct{})}, recheck: make(chan struct{}, 1), done: make(chan struct{}),
	}
	connect := func() releasedDriver {
		d := releasedDriver{asked: make(chan struct{}, 1)}
		server := grpc.NewServer()
		clusterpb.RegisterControlServer(server, d)
		conn := serveOn(t, server)
		p.mu.Lock()
		p.conn = conn
		p.mu.Unlock()
		p.wake()
		return d
	}
	client := clusterpb.NewControlClient(
		serveOn(t, grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}))))
	return p, client, connect
}

// TestShutdownOutlivesDrivers: the end of the connection to a driver that releases the cluster is not an error, and the
// driver that the engine starts instead is asked, too.
func TestShutdownOutlivesDrivers(t *testing.T) {
	t.Parallel()
	p, client, connect := released(t)
	first := connect()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := client.Shutdown(ctx, &clusterpb.ShutdownRequest{})
	if err != nil {
		t.Fatal(err)
	}
	<-first.asked
	p.disconnect("it is being started anew")
	<-connect().asked
	p.disconnect("it has ended")
	p.setEnded(errors.New("released"))
	if u, err := stream.Recv(); err != nil || !u.GetDone() {
		t.Errorf("shutdown received %v, %v", u, err)
	}
}

// TestCallsAreNotCancelled: a call whose driver is replaced fails for that reason, not as one that its user has
// interrupted.
func TestCallsAreNotCancelled(t *testing.T) {
	t.Parallel()
	p, client, connect := released(t)
	d := connect()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	failed := make(chan error)
	go func() {
		_, err := client.Status(ctx, &clusterpb.StatusRequest{})
		failed <- err
	}()
	<-d.asked
	p.disconnect("it is being started anew")
	if err := <-failed; status.Code(err) != codes.Aborted {
		t.Errorf("the call failed with %v", err)
	}
}

package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// watchedDriver sends statuses until it is told to end a stream, with an error or without.
type watchedDriver struct {
	clusterpb.UnimplementedControlServer
	states chan string
	end    chan error
}

func (d watchedDriver) Watch(_ *clusterpb.WatchRequest, s grpc.ServerStreamingServer[clusterpb.ClusterStatus]) error {
	for {
		select {
		case state := <-d.states:
			if err := s.Send(&clusterpb.ClusterStatus{State: state}); err != nil {
				return err
			}
		case err := <-d.end:
			return err
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// serveOn serves on a unix socket and returns a connection to it.
func serveOn(t *testing.T, server *grpc.Server) *grpc.ClientConn {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // ends with Stop, which is no error
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// drivenBy is a driver of a proxy, on a connection.
func drivenBy(t *testing.T) (watchedDriver, *grpc.ClientConn) {
	d := watchedDriver{states: make(chan string), end: make(chan error)}
	server := grpc.NewServer()
	clusterpb.RegisterControlServer(server, d)
	return d, serveOn(t, server)
}

// TestWatchOutlivesDrivers: a panel has a status while no driver answers, then those of each driver, until the cluster
// is over.
func TestWatchOutlivesDrivers(t *testing.T) {
	t.Parallel()
	p := &Proxy{
		cfg:  Config{Name: "c", Request: &clusterpb.ReserveRequest{Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}}},
		link: link{changed: make(chan struct{}), waiting: "it is queued"}, recheck: make(chan struct{}, 1),
		done: make(chan struct{}),
	}
	client := clusterpb.NewControlClient(
		serveOn(t, grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}))))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := client.Watch(ctx, &clusterpb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func(want string) *clusterpb.ClusterStatus {
		t.Helper()
		st, err := stream.Recv()
		if err != nil || st.GetState() != want {
			t.Fatalf("the next status is %v, not %s: %v", st, want, err)
		}
		return st
	}
	connect := func(conn *grpc.ClientConn) {
		p.mu.Lock()
		p.conn, p.address = conn, "driver:1"
		p.mu.Unlock()
		p.wake()
	}
	if st := next("reserving"); st.GetName() != "c" || st.GetExecutors()[0].GetCause() != "it is queued" {
		t.Errorf("without a driver it is %v", st)
	}
	if _, err := client.Samples(ctx, &clusterpb.SamplesRequest{}); status.Code(err) != codes.Unavailable ||
		!strings.Contains(err.Error(), "it is queued") {
		t.Errorf("without a driver the samples are %v", err)
	}
	p.setWaiting("it starts")
	if st := next("reserving"); st.GetExecutors()[0].GetCause() != "it starts" {
		t.Errorf("without a driver it is %v", st)
	}
	first, conn := drivenBy(t)
	connect(conn)
	first.states <- "ready"
	next("ready")
	first.states <- "running"
	next("running")
	second, other := drivenBy(t)
	first.end <- errors.New("killed")
	connect(other)
	second.states <- "ready"
	next("ready")
	second.states <- "released"
	next("released")
	second.end <- nil
	if st, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, %v", st, err)
	}

	p.mu.Lock()
	p.conn = nil
	p.mu.Unlock()
	late, err := client.Watch(ctx, &clusterpb.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	p.setEnded(errors.New("the application is over"))
	var last *clusterpb.ClusterStatus
	for {
		st, err := late.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		last = st
	}
	if last.GetState() != "failed" {
		t.Errorf("the last status of a cluster that is over is %v", last)
	}
}

// hangingDriver answers no call.
type hangingDriver struct {
	clusterpb.UnimplementedControlServer
}

func (hangingDriver) Status(ctx context.Context, _ *clusterpb.StatusRequest) (*clusterpb.ClusterStatus, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestStatusOfSilentDriver: the status of a driver that does not answer is an error that says what is waited for.
func TestStatusOfSilentDriver(t *testing.T) {
	t.Parallel()
	server := grpc.NewServer()
	clusterpb.RegisterControlServer(server, hangingDriver{})
	p := &Proxy{
		cfg: Config{Name: "c", Request: &clusterpb.ReserveRequest{Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}}},
		link: link{
			changed: make(chan struct{}), conn: serveOn(t, server), address: "node:1", replaces: "another one in 10 minutes",
		},
		recheck: make(chan struct{}, 1), done: make(chan struct{}),
	}
	client := clusterpb.NewControlClient(
		serveOn(t, grpc.NewServer(grpc.UnknownServiceHandler(p.handle), grpc.ForceServerCodec(raw{}))))
	_, err := client.Status(t.Context(), &clusterpb.StatusRequest{})
	const want = "the cluster's driver at node:1 does not answer: its host is busy, down or cut off; " +
		"another one in 10 minutes"
	if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != want {
		t.Errorf("the status is %v, want %q", err, want)
	}
}

package magics

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// fakeCluster is a driver without executors: it answers as its fields say.
type fakeCluster struct {
	clusterpb.UnimplementedControlServer
	request *clusterpb.ReserveRequest

	mu sync.Mutex
	// guarded by mu
	reserve   []*clusterpb.ReserveUpdate // sent in turn; a ready one is added
	hang      bool                       // reserve and follow never end by themselves
	follow    []*clusterpb.RunUpdate
	shown     *clusterpb.ClusterStatus // what panels are sent; nil: the status
	news      chan struct{}            // closed when shown changes
	starts    []*clusterpb.StartRequest
	stops     []*clusterpb.StopRequest
	shutdowns []*clusterpb.ShutdownRequest
	logs      []*clusterpb.LogsRequest
	lines     []*clusterpb.Line
	kept      map[string]uint64 // position after the stored lines; nil: not all of them have been sent
	run       *clusterpb.RunStatus
	board     *clusterpb.TensorBoardReply  // nil: one that is made up
	address   *clusterpb.LinesAddressReply // nil: its driver does not know the call
	stacks    []*clusterpb.StacksReply
	why       *clusterpb.WhyReply
	detached  bool
	clients   int
	statuses  int           // calls of Status
	leave     chan struct{} // ends the streams of Hold; nil: they end with their clients
	stuck     bool          // start never answers
	failStart *clusterpb.Failure
	gone      error                      // of every call
	lost      func(f *fakeCluster) error // ends follow and logs -f once, f locked; nil: not
	ends      bool                       // logs -f ends by itself
	protocol  int32                      // of its driver
	stopped   chan struct{}
	over      chan struct{}
}

func executors(roles []*clusterpb.Role, state string) []*clusterpb.ExecutorStatus {
	var out []*clusterpb.ExecutorStatus
	for i, task := range cluster.Tasks(roles) {
		x := &clusterpb.ExecutorStatus{Id: fmt.Sprint(i), Task: task.String(), State: state, Host: "host" + fmt.Sprint(i%2)}
		if state == "ready" {
			x.Python = &clusterpb.Python{Version: "3.11.7", Tensorflow: "2.21.0", Keras: "3.15.1"}
		}
		out = append(out, x)
	}
	return out
}

func (f *fakeCluster) Reserve(_ *clusterpb.ReserveRequest,
	s grpc.ServerStreamingServer[clusterpb.ReserveUpdate],
) error {
	f.mu.Lock()
	updates, hang := slices.Clone(f.reserve), f.hang
	f.mu.Unlock()
	for _, u := range updates {
		if err := s.Send(u); err != nil || u.GetFailure() != nil {
			return err
		}
	}
	if hang {
		select {
		case <-s.Context().Done():
		case <-f.over:
		}
		return status.Error(codes.Unavailable, "released")
	}
	return s.Send(&clusterpb.ReserveUpdate{Ready: true, Seconds: 1.5, Executors: executors(f.request.GetRoles(), "ready")})
}

func (f *fakeCluster) Hold(s grpc.BidiStreamingServer[clusterpb.HoldRequest, clusterpb.HoldUpdate]) error {
	f.mu.Lock()
	f.clients++
	leave := f.leave
	f.mu.Unlock()
	err := s.Send(&clusterpb.HoldUpdate{})
	select {
	case <-s.Context().Done():
	case <-leave:
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clients--
	return err
}

func (f *fakeCluster) Status(context.Context, *clusterpb.StatusRequest) (*clusterpb.ClusterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.statuses++
	return &clusterpb.ClusterStatus{
		Protocol: f.protocol, Version: "9.9",
		Name: f.request.GetName(), Backend: f.request.GetBackend(), State: "ready",
		Executors: executors(f.request.GetRoles(), "ready"), Run: f.run, Dir: f.request.GetDir(),
		IdleMillis: f.request.GetIdleMillis(), Roles: f.request.GetRoles(), Host: "edge", DriverPid: 4711, Clients: max(1,
			int32(f.clients)), Request: f.request, Detached: f.detached, BeginsItself: f.request.GetBegin() != nil,
	}, nil
}

func (f *fakeCluster) Start(req *clusterpb.StartRequest, s grpc.ServerStreamingServer[clusterpb.StartUpdate]) error {
	f.mu.Lock()
	f.starts = append(f.starts, req)
	id := int32(len(f.starts))
	run := &clusterpb.RunStatus{
		Id: id, State: "running", Program: req.GetProgram().GetName(), Words: req.GetProgram().GetWords(),
		Dir:    fmt.Sprintf("%s/run-%03d", f.request.GetDir(), id),
		LogDir: fmt.Sprintf("%s/run-%03d/logs", f.request.GetDir(), id),
	}
	for _, t := range cluster.Tasks(f.request.GetRoles()) {
		run.Tasks = append(run.Tasks, &clusterpb.TaskStatus{Task: t.String(), State: "running", Host: "host0"})
	}
	f.run = run
	failure, stuck := f.failStart, f.stuck
	f.mu.Unlock()
	if stuck {
		<-s.Context().Done()
		return s.Context().Err()
	}
	if failure != nil {
		failed := proto.CloneOf(run)
		failed.State, failed.Failure = "failed", failure
		return s.Send(&clusterpb.StartUpdate{Run: failed, Failure: failure})
	}
	return s.Send(&clusterpb.StartUpdate{Run: run, Entered: true})
}

func (f *fakeCluster) Follow(_ *clusterpb.FollowRequest, s grpc.ServerStreamingServer[clusterpb.RunUpdate]) error {
	f.mu.Lock()
	updates, hang, run := slices.Clone(f.follow), f.hang, f.run
	f.mu.Unlock()
	if run == nil && f.request.GetBegin() != nil { // it begins by itself
		<-s.Context().Done()
		return s.Context().Err()
	}
	if run == nil {
		return status.Error(codes.NotFound, "nothing has been started yet")
	}
	for _, u := range updates {
		if err := s.Send(u); err != nil {
			return err
		}
	}
	if err := f.lose(); err != nil || !hang {
		return err
	}
	select {
	case <-s.Context().Done():
		return s.Context().Err()
	case <-f.stopped:
	}
	ended := proto.CloneOf(run)
	ended.State = "stopped"
	f.mu.Lock()
	f.run = ended
	f.mu.Unlock()
	return s.Send(&clusterpb.RunUpdate{Status: ended, Final: true})
}

func (f *fakeCluster) Stop(_ context.Context, req *clusterpb.StopRequest) (*clusterpb.RunStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stops = append(f.stops, req)
	if req.GetGraceMillis() == 0 || len(f.stops) == 1 && !f.hang {
		close(f.stopped)
	}
	return f.run, nil
}

func (f *fakeCluster) Reset(_ *clusterpb.ResetRequest, s grpc.ServerStreamingServer[clusterpb.ResetUpdate]) error {
	return s.Send(&clusterpb.ResetUpdate{Done: true, Executors: executors(f.request.GetRoles(), "ready")})
}

func (f *fakeCluster) Logs(req *clusterpb.LogsRequest, s grpc.ServerStreamingServer[clusterpb.LinesReply]) error {
	f.mu.Lock()
	f.logs = append(f.logs, req)
	lines, kept, run := f.lines, f.kept, f.run.GetId()
	f.mu.Unlock()
	replies := []*clusterpb.LinesReply{{Run: run}, {Lines: lines}}
	if req.GetFollow() && kept != nil {
		replies = append(replies, &clusterpb.LinesReply{Run: run, KeptSent: true, Position: kept})
	}
	for _, r := range replies {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	if err := f.lose(); err != nil {
		return err
	}
	f.mu.Lock()
	ends := f.ends
	f.mu.Unlock()
	if req.GetFollow() && !ends {
		<-s.Context().Done()
	}
	return nil
}

// lose is the death of the driver while it sends.
func (f *fakeCluster) lose() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.lost == nil {
		return nil
	}
	return f.lost(f)
}

func (f *fakeCluster) Detach(context.Context, *clusterpb.DetachRequest) (*clusterpb.RunStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil {
		return nil, status.Error(codes.FailedPrecondition, "no run is active: there is nothing to detach")
	}
	f.detached = true
	return f.run, nil
}

func (f *fakeCluster) History(context.Context, *clusterpb.HistoryRequest) (*clusterpb.HistoryReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.run == nil {
		return &clusterpb.HistoryReply{}, nil
	}
	return &clusterpb.HistoryReply{Runs: []*clusterpb.RunStatus{f.run}}, nil
}

func (f *fakeCluster) TensorBoard(context.Context, *clusterpb.TensorBoardRequest) (*clusterpb.TensorBoardReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.board != nil {
		return f.board, nil
	}
	return &clusterpb.TensorBoardReply{
		Id: "tb-1", Path: "tfcluster/local-1/00112233445566778899aabbccddeeff/", Logdir: f.request.GetDir(),
	}, nil
}

func (f *fakeCluster) LinesAddress(ctx context.Context,
	r *clusterpb.LinesAddressRequest,
) (*clusterpb.LinesAddressReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.address == nil {
		return f.UnimplementedControlServer.LinesAddress(ctx, r)
	}
	return f.address, nil
}

func (f *fakeCluster) GPUs(context.Context, *clusterpb.GPUsRequest) (*clusterpb.GPUsReply, error) {
	return &clusterpb.GPUsReply{Gpus: []*clusterpb.GPU{{
		Index: 1, Name: "H200", MemoryBytes: 141 << 30, UsedBytes: 3 << 30, Utilization: 87, Host: "host0",
		Holder: "worker:0",
	}}}, nil
}

func (f *fakeCluster) Shutdown(req *clusterpb.ShutdownRequest,
	s grpc.ServerStreamingServer[clusterpb.ShutdownUpdate],
) error {
	f.mu.Lock()
	f.shutdowns = append(f.shutdowns, req)
	running, detached := f.run.GetState() == "running", f.detached
	f.mu.Unlock()
	switch {
	case req.GetUnlessDetached() && detached:
		return status.Error(codes.FailedPrecondition, "a detached run is active: %tfcluster shutdown --force ends it")
	case running && !req.GetForce():
		return status.Error(codes.FailedPrecondition,
			"run 1 is active: %tfcluster stop ends it, %tfcluster shutdown --force ends both")
	}
	close(f.over)
	return s.Send(&clusterpb.ShutdownUpdate{Done: true})
}

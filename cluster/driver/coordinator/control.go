package coordinator

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// control implements the Control service. It is a type of its own because both services have a
// method Logs.
type control struct {
	clusterpb.UnimplementedControlServer
	*Coordinator
}

// clients is the state of the clients. Owned by the loop.
type clients struct {
	holds     int       // Hold streams
	idleSince time.Time // zero while the idle timer is stopped
	detached  bool      // the active run continues without clients
}

// Control returns the service for clients, to be registered on the driver's socket.
func (c *Coordinator) Control() clusterpb.ControlServer { return &control{Coordinator: c} }

// Reserve implements the Control service: it sends the progress until the cluster is ready or
// has failed. In a ready cluster it has lost executors replaced.
func (c *control) Reserve(_ *clusterpb.ReserveRequest,
	stream grpc.ServerStreamingServer[clusterpb.ReserveUpdate],
) error {
	if err := c.call(stream.Context(), func() { c.handle(lifecycle.RenewRequested{}) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	told, failed := 0, false
	err := updates(c.Coordinator, stream, func(u *clusterpb.ReserveUpdate) bool {
		c.reservation(u)
		u.Notes, told = c.notes.since(told), c.notes.total()
		failed = u.GetFailure() != nil
		return u.GetReady() || failed
	}, nil)
	if err == nil && failed {
		c.post(c.failureSent)
	}
	return err
}

// reset ends all processes of runs; hard restarts every executor's agent and Python. Loop only.
func (c *Coordinator) reset(hard bool) {
	if hard {
		c.execs.generation.Add(1)
	}
	if chooser, ok := c.reserved.alloc.(cluster.NodeExcluder); ok {
		chooser.ClearExclusions()
		c.saveState() // a later driver must not exclude them either
	}
	c.handle(lifecycle.ResetRequested{Hard: hard})
}

// reservation fills an update with the state of the reservation. Loop only.
func (c *Coordinator) reservation(u *clusterpb.ReserveUpdate) {
	if c.reserved.answer != nil {
		u.Ready, u.Failure = c.reserved.answer.GetReady(), c.reserved.answer.GetFailure()
	}
	if u.GetReady() { // lost executors are being replaced
		for _, x := range c.lc.Executors() {
			u.Ready = u.Ready && (x.State == lifecycle.ExecutorReady || x.State == lifecycle.ExecutorLost)
		}
	}
	u.Executors = c.execs.statuses(c.lc.Executors())
	u.Seconds = time.Since(c.since).Seconds()
	if c.reserved.alloc != nil {
		u.Allocation = c.reserved.alloc.ID()
	}
	if !u.Ready && u.Failure == nil {
		u.Waiting = c.lc.Missing()
	}
}

// failureSent records that a client has read why the reservation failed. A cluster without an
// allocation ends then. Loop only.
func (c *Coordinator) failureSent() {
	if !c.reserved.failureShown {
		c.reserved.failureShown = true
		close(c.reserved.failureRead)
	}
	if c.reserved.alloc == nil && c.lc.State() == lifecycle.Failed {
		c.release("nothing was granted")
	}
}

// Hold implements the Control service.
func (c *control) Hold(stream grpc.BidiStreamingServer[clusterpb.HoldRequest, clusterpb.HoldUpdate]) error {
	ctx := stream.Context()
	if err := c.call(ctx,
		func() { c.clients.holds++; c.handle(lifecycle.ClientsChanged{Count: c.clients.holds}) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	defer c.post(func() { c.clients.holds--; c.handle(lifecycle.ClientsChanged{Count: c.clients.holds}) })
	if err := stream.Send(&clusterpb.HoldUpdate{}); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() { // ends with the stream
		defer close(gone)
		for {
			if _, err := stream.Recv(); err != nil {
				return
			}
		}
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-c.done:
	}
	return nil
}

// Status implements the Control service.
func (c *control) Status(ctx context.Context, _ *clusterpb.StatusRequest) (*clusterpb.ClusterStatus, error) {
	return ask(ctx, &c.eventLoop, func() (*clusterpb.ClusterStatus, error) { return c.clusterStatus(), nil })
}

func (c *Coordinator) clusterStatus() *clusterpb.ClusterStatus {
	host, _ := os.Hostname() // is acceptable
	s := &clusterpb.ClusterStatus{
		Name: c.cfg.Name, Backend: c.cfg.Request.GetBackend(), State: c.lc.State().String(),
		Executors: c.execs.statuses(c.lc.Executors()), Dir: c.cfg.Dir, SinceUnix: c.since.Unix(),
		IdleMillis: c.cfg.Request.GetIdleMillis(), Detached: c.clients.detached, DriverPid: int32(os.Getpid()),
		Owner: c.cfg.Request.GetOwner(), Clients: int32(c.clients.holds), Roles: c.cfg.Request.GetRoles(), Host: host,
		Version: c.cfg.Version, Protocol: clusterpb.Protocol, Request: c.cfg.Request, BeginsItself: c.cfg.Begin != nil,
		Network: c.reserved.network,
	}
	if _, remote := c.cfg.Backend.(cluster.RemoteEngine); remote {
		s.Dialed = c.Address()
	}
	if c.reserved.alloc != nil {
		s.Allocation = c.reserved.alloc.ID()
	}
	if c.reserved.answer == nil {
		s.Waiting = c.lc.Missing()
	}
	since := 0
	if rec := c.runs.current(); rec != nil {
		since = rec.shown.notesAtStart // earlier notes belong to earlier runs
	}
	s.Notes = c.notes.since(since)
	// Otherwise a client could stop an earlier run by mistake.
	if rec := c.runs.current(); rec != nil && !c.autoStartPending() {
		s.Run = c.status(rec)
		if c.lc.Active() {
			s.State = "running"
		}
	}
	if !c.clients.idleSince.IsZero() {
		s.IdleLeftMillis = max(1, (c.lc.IdleLimit() - time.Since(c.clients.idleSince)).Milliseconds())
	}
	return s
}

// Stop implements the Control service: it requests the stop and returns; Follow reports the
// end.
func (c *control) Stop(ctx context.Context, req *clusterpb.StopRequest) (*clusterpb.RunStatus, error) {
	return ask(ctx, &c.eventLoop, func() (*clusterpb.RunStatus, error) {
		rec := c.runs.find(req.GetRun())
		if rec == nil {
			return nil, status.Error(codes.NotFound, "there is no run to stop")
		}
		if rec == c.runs.current() {
			c.handle(lifecycle.StopRequested{
				Grace: time.Duration(req.GetGraceMillis()) * time.Millisecond, Reason: "stopped on request",
			})
		}
		return c.status(rec), nil
	})
}

// resetTimeout bounds a reset: the engine may have no other executor.
const resetTimeout = 2 * time.Minute

// Reset implements the Control service.
func (c *control) Reset(req *clusterpb.ResetRequest, stream grpc.ServerStreamingServer[clusterpb.ResetUpdate]) error {
	if err := c.call(stream.Context(), func() { c.reset(req.GetHard()) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	began := time.Now()
	return updates(c.Coordinator, stream, func(u *clusterpb.ResetUpdate) bool {
		u.Executors = c.execs.statuses(c.lc.Executors())
		u.Done = true
		for _, x := range c.lc.Executors() {
			u.Done = u.Done && x.State == lifecycle.ExecutorReady && !x.Busy
		}
		if u.Done {
			return true
		}
		u.Text = c.lc.Missing()
		if time.Since(began) < resetTimeout {
			return false
		}
		u.Failure = &clusterpb.Failure{
			Kind: "timeout", Summary: fmt.Sprintf("not every executor is back after %s: %s", resetTimeout, u.GetText()),
			ExitCode: 75, Remedy: "%tfcluster reset --hard, or shutdown and reserve again",
		}
		return true
	}, nil)
}

// Detach implements the Control service.
func (c *control) Detach(ctx context.Context, req *clusterpb.DetachRequest) (*clusterpb.RunStatus, error) {
	return ask(ctx, &c.eventLoop, func() (*clusterpb.RunStatus, error) {
		if !c.lc.Busy() && !req.GetUndo() {
			return nil, status.Error(codes.FailedPrecondition,
				"no run is active, so there is nothing to detach: start a run first")
		}
		c.clients.detached = !req.GetUndo()
		c.saveState()
		if rec := c.runs.current(); rec != nil {
			return c.statusWithValues(rec), nil // it may have ended already
		}
		return nil, nil //nolint:nilnil // no run has begun
	})
}

// allocation returns the engine's allocation; nil: there is none yet.
func (c *Coordinator) allocation(ctx context.Context) (cluster.Allocation, error) {
	return ask(ctx, &c.eventLoop, func() (cluster.Allocation, error) { return c.reserved.alloc, nil })
}

// EngineSession implements the Control service.
func (c *control) EngineSession(ctx context.Context,
	_ *clusterpb.EngineSessionRequest,
) (*clusterpb.EngineSessionReply, error) {
	alloc, err := c.allocation(ctx)
	if err != nil {
		return nil, err
	}
	sharer, ok := alloc.(cluster.SessionSharer)
	if !ok {
		return nil, status.Errorf(codes.FailedPrecondition,
			"a cluster on %s has no Spark session to share: reserve with --backend spark", c.cfg.Request.GetBackend())
	}
	reply, err := sharer.Session(ctx)
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	return reply, nil
}

// History implements the Control service. It returns only the reprs of results: all values
// together may be gigabytes.
func (c *control) History(ctx context.Context, req *clusterpb.HistoryRequest) (*clusterpb.HistoryReply, error) {
	h, err := ask(ctx, &c.eventLoop, func() (*clusterpb.HistoryReply, error) {
		h := &clusterpb.HistoryReply{}
		for _, r := range c.runs.records {
			if !req.GetAll() && !c.runs.isOwn(r) {
				h.Earlier++
				continue
			}
			h.Runs = append(h.Runs, c.status(r))
		}
		for _, l := range applications(c.reserved.alloc) {
			h.Leases = append(h.Leases, &clusterpb.Lease{Id: l.ID, State: l.State, SinceUnix: l.Since.Unix()})
		}
		return h, nil
	})
	if err != nil {
		return nil, err
	}
	if h.Manifests, err = c.readManifests(ctx, req.GetManifests()); err != nil {
		return nil, status.Error(codes.Internal, err.Error()) // not Unavailable: the driver answers
	}
	return h, nil
}

// TensorBoard implements the Control service.
func (c *control) TensorBoard(ctx context.Context,
	req *clusterpb.TensorBoardRequest,
) (*clusterpb.TensorBoardReply, error) {
	if c.cfg.TensorBoard == nil {
		return nil, status.Error(codes.Unimplemented, "this driver serves no TensorBoard")
	}
	if req.GetStop() {
		if err := c.cfg.TensorBoard.Stop(ctx); err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		return &clusterpb.TensorBoardReply{}, nil
	}
	dir := req.GetLogdir()
	var err error
	if dir == "" {
		dir = c.cfg.Dir
		if req.GetRun() > 0 {
			dir = rundir.Join(rundir.Dir(c.cfg.Dir, req.GetRun()), "logs")
			err = c.files.fetchFolder(ctx, req.GetRun(), "logs")
		} else {
			err = c.showAll(ctx)
		}
	}
	here := c.files.localPath(dir)
	if rundir.IsURI(here) {
		err = errOtherHost
	}
	var reply *clusterpb.TensorBoardReply
	if err == nil {
		reply, err = c.cfg.TensorBoard.Open(ctx, here)
	}
	if err != nil {
		return &clusterpb.TensorBoardReply{Logdir: dir, Error: err.Error()}, nil
	}
	reply.Logdir = dir
	return reply, nil
}

// GPUs implements the Control service.
func (c *control) GPUs(ctx context.Context, _ *clusterpb.GPUsRequest) (*clusterpb.GPUsReply, error) {
	return ask(ctx, &c.eventLoop, func() (*clusterpb.GPUsReply, error) {
		r := &clusterpb.GPUsReply{}
		for _, x := range c.lc.Executors() {
			h := c.execs.hellos[x.ID]
			for _, g := range h.GetGpus() {
				g = proto.CloneOf(g)
				g.Host, g.Holder = x.Host, x.Task.String()
				if use := c.execs.gpus[x.ID]; use != nil {
					for _, u := range use.Each {
						if u.GetUuid() == g.GetUuid() {
							g.Utilization, g.UsedBytes = u.GetUtilization(), u.GetUsedBytes()
						}
					}
				}
				r.Gpus = append(r.Gpus, g)
			}
			if e := h.GetGpuError(); e != "" {
				r.Errors = append(r.Errors, x.Host+": "+e)
			}
		}
		return r, nil
	})
}

// Shutdown implements the Control service.
func (c *control) Shutdown(req *clusterpb.ShutdownRequest,
	stream grpc.ServerStreamingServer[clusterpb.ShutdownUpdate],
) error {
	ctx := stream.Context()
	_, err := ask(ctx, &c.eventLoop, func() (_ any, problem error) {
		switch {
		case req.GetUnlessDetached() && c.clients.detached && c.lc.Busy():
			problem = status.Error(codes.FailedPrecondition, "a detached run is active: %tfcluster shutdown --force ends it")
		case c.runs.planning && !req.GetForce():
			problem = status.Errorf(codes.FailedPrecondition, "run %d is about to begin: %%tfcluster stop ends it when it has "+
				"begun, %%tfcluster shutdown --force ends the cluster at once", c.runs.lastRun+1)
		case c.lc.Busy() && !req.GetForce():
			problem = status.Errorf(codes.FailedPrecondition,
				"run %d is active: %%tfcluster stop ends it, %%tfcluster shutdown --force ends both", c.runs.lastRun)
		default:
			c.handle(lifecycle.ShutdownRequested{Reason: req.GetReason()})
		}
		return nil, problem
	})
	if err != nil {
		return err
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(40 * time.Second):
		if c.cfg.Spool != nil {
			return stream.Send(&clusterpb.ShutdownUpdate{
				Text: "the files of runs are still being written to " + c.cfg.Dir + "; the driver ends after that", Done: true,
			})
		}
		return status.Error(codes.DeadlineExceeded, "the cluster is still being released: repeat shutdown to wait for it")
	}
	if c.reserved.lastNote != "" { // written before done is closed
		if err := stream.Send(&clusterpb.ShutdownUpdate{Text: c.reserved.lastNote}); err != nil {
			return err
		}
	}
	return stream.Send(&clusterpb.ShutdownUpdate{Done: true})
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Start implements the Control service.
func (c *control) Start(req *clusterpb.StartRequest, stream grpc.ServerStreamingServer[clusterpb.StartUpdate]) error {
	ctx := stream.Context()
	changed, leave := c.watch()
	defer leave()
	var rec *record
	var told int
	var problem error
	if req.GetReplace() {
		if err := c.endActive(ctx, changed); err != nil {
			return err
		}
	}
	if err := c.call(ctx, func() { told = len(c.notes); rec, problem = c.begin(req) }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if problem != nil {
		return problem
	}
	for {
		u := &clusterpb.StartUpdate{}
		var over bool
		err := c.call(ctx, func() {
			u.Run, u.Entered, over = c.status(rec), rec.entered, !rec.over.IsZero()
			if u.Run.GetState() == "waiting" || (!u.Entered && !c.lc.active()) {
				u.Run.State = "starting"
			}
			u.Notes = c.notes[told:]
			told = len(c.notes)
		})
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if over {
			c.awaitLines(ctx, u.GetRun())
			u.Failure = u.Run.GetFailure()
			if u.Failure == nil {
				u.Entered = true
			}
		}
		if err := stream.Send(u); err != nil {
			return err
		}
		if over || u.GetEntered() {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return status.Error(codes.Unavailable, ErrOver.Error())
		}
	}
}

func (c *control) endActive(ctx context.Context, changed <-chan struct{}) error {
	for {
		var active bool
		err := c.call(ctx, func() {
			c.handle(evStop{grace: 2 * time.Second, reason: "replaced by another start"})
			active = c.lc.active() || c.lc.next != nil
		})
		if err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		if !active {
			return nil
		}
		select {
		case <-changed:
		case <-time.After(time.Second):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// begin makes the run's record and folders and hands it to the lifecycle. Loop only.
func (c *Coordinator) begin(req *clusterpb.StartRequest) (*record, error) {
	switch {
	case c.lc.state == stateReserving:
		return nil, status.Errorf(codes.FailedPrecondition, "the reservation is not complete: %s", c.lc.missing())
	case c.lc.state != stateReady:
		return nil, status.Error(codes.FailedPrecondition, "the cluster is being released")
	case c.lc.active() || c.lc.next != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "run %d is active: wait for it, stop it, or start with --replace", c.lastRun)
	}
	if req.GetAgain() {
		if c.program == nil {
			return nil, status.Error(codes.FailedPrecondition, "--again: nothing has been started in this cluster yet")
		}
		again := proto.CloneOf(c.program)
		again.Resume, again.MaxRestarts, again.StepTimeoutMillis, again.RunTimeoutMillis = req.GetResume(), req.GetMaxRestarts(), req.GetStepTimeoutMillis(), req.GetRunTimeoutMillis()
		again.Callback, again.KerasPatch = req.GetCallback(), req.GetKerasPatch()
		for k, v := range req.GetEnv() {
			if again.Env == nil {
				again.Env = map[string]string{}
			}
			again.Env[k] = v
		}
		req = again
	}
	if req.GetProgram().GetKind() == clusterpb.Program_KIND_UNSPECIFIED {
		return nil, status.Error(codes.InvalidArgument, "no program to start")
	}
	from, err := c.resumeFrom(req.GetResume())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	id := c.lastRun + 1
	dir := RunDir(c.cfg.Dir, id)
	st := &clusterpb.RunStatus{
		Id: id, State: "starting", Program: req.GetProgram().GetName(), Words: req.GetProgram().GetWords(), Dir: dir, LogDir: filepath.Join(dir, "logs"),
		CheckpointDir: filepath.Join(dir, "checkpoints"), ExportDir: filepath.Join(dir, "export"), StartedUnix: time.Now().Unix(), MaxRestarts: req.GetMaxRestarts(),
	}
	for _, d := range []string{st.LogDir, st.CheckpointDir, st.ExportDir} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "make the run's folder: %v; reserve with another --dir", err)
		}
	}
	if from != nil {
		st.ResumedFrom = fmt.Sprintf("run %d", from.GetId())
		if err := os.CopyFS(st.CheckpointDir, os.DirFS(from.GetCheckpointDir())); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, status.Errorf(codes.FailedPrecondition, "take up the checkpoints of run %d: %v", from.GetId(), err)
		}
	}
	clear(c.blobs) // the last run's; --again brings its own along
	for _, b := range []*clusterpb.Blob{req.GetProgram().GetBody(), req.GetProgram().GetArgs(), req.GetProgram().GetModules()} {
		c.keepBlob(b)
	}
	c.program = req
	c.lastRun = id
	rec := newRecord(st)
	c.records = append(c.records, rec)
	c.detached = false
	c.saveState()
	c.handle(evStart{runSpec{
		id: id, maxRestarts: int(req.GetMaxRestarts()), stepTimeout: time.Duration(req.GetStepTimeoutMillis()) * time.Millisecond,
		runTimeout: time.Duration(req.GetRunTimeoutMillis()) * time.Millisecond,
	}})
	return rec, nil
}

// resumeFrom finds the run whose checkpoints --resume names.
func (c *Coordinator) resumeFrom(which string) (*clusterpb.RunStatus, error) {
	if which == "" {
		return nil, nil
	}
	if which == "last" {
		for i := len(c.records) - 1; i >= 0; i-- {
			st := c.records[i].status
			if entries, err := os.ReadDir(st.GetCheckpointDir()); err == nil && len(entries) > 0 {
				return st, nil
			}
		}
		return nil, errors.New("--resume: no earlier run of this cluster has left a checkpoint")
	}
	n, err := strconv.Atoi(which)
	if err != nil {
		return nil, fmt.Errorf("--resume=%s: want a run's number or last", which)
	}
	rec := c.find(int32(n))
	if rec == nil || n == 0 {
		return nil, fmt.Errorf("--resume=%d: there is no run %d; the last one is run %d", n, n, c.lastRun)
	}
	if entries, err := os.ReadDir(rec.status.GetCheckpointDir()); err != nil || len(entries) == 0 {
		return nil, fmt.Errorf("--resume=%d: run %d has left no checkpoint", n, n)
	}
	return rec.status, nil
}

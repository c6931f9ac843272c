package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// fetchChunk is the chunk size of Fetch, in bytes.
const fetchChunk = 1 << 20

// Fetch implements the Coordinator service.
func (c *Coordinator) Fetch(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	var data []byte
	var ok bool
	if err := c.call(stream.Context(), func() { data, ok = c.runs.blobs[req.GetSha256()] }); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	if !ok {
		return c.files.fetchShipped(req, stream)
	}
	for {
		n := min(fetchChunk, len(data))
		if err := stream.Send(&clusterpb.Chunk{Data: data[:n]}); err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// receiver returns the receiver of files of executors with their own disks.
func (c *Coordinator) receiver() *runfiles.Receiver {
	roles := map[cluster.ExecutorID]cluster.TaskID{}
	chief := false
	for _, x := range cluster.ExecutorRequests(c.cfg.Request.GetRoles()) {
		roles[x.ID] = x.Task
		chief = chief || x.Task.Role == cluster.Chief
	}
	first := func(executor string) bool {
		t := roles[cluster.ExecutorID(executor)]
		return t.Role == cluster.Chief || !chief && t == cluster.TaskID{Role: cluster.Worker}
	}
	var disk runfiles.Storage = c.cfg.Spool
	if c.cfg.Spool == nil {
		disk = runfiles.NewLocal(c.cfg.Dir)
	}
	return runfiles.NewReceiver(disk, c.cfg.folder(), first,
		func(warning string) { c.post(func() { c.noteOnce(warning); c.subs.wake() }) })
}

// Sync implements the Coordinator service.
func (c *Coordinator) Sync(stream grpc.ClientStreamingServer[clusterpb.FileChunk, clusterpb.SyncReply]) error {
	return c.files.receiver.Append(auth.PeerName(stream.Context()), stream)
}

// Put implements the Coordinator service.
func (c *Coordinator) Put(stream grpc.BidiStreamingServer[clusterpb.PutRequest, clusterpb.PutReply]) error {
	return c.files.receiver.Put(auth.PeerName(stream.Context()), stream)
}

// List implements the Coordinator service.
func (c *Coordinator) List(_ context.Context, req *clusterpb.ListRequest) (*clusterpb.ListReply, error) {
	return c.files.receiver.List(req)
}

// Get implements the Coordinator service.
func (c *Coordinator) Get(req *clusterpb.GetRequest, stream grpc.ServerStreamingServer[clusterpb.GetReply]) error {
	return c.files.receiver.Get(req, stream)
}

// pendingFiles says that an executor has yet to send a task's files.
type pendingFiles struct {
	run     int32
	attempt int // of the executor: a replaced one does not have these files
	launch  int32
}

// filesSent handles an agent's report that its files were sent, or are missing. Loop only.
func (c *Coordinator) filesSent(id cluster.ExecutorID, m *clusterpb.FilesSent) {
	o, ok := c.execs.pendingFiles[id]
	if !ok || o.run != m.GetRun() || o.launch != m.GetAttempt() {
		return // of an earlier launch, or repeated
	}
	delete(c.execs.pendingFiles, id)
	if missing := m.GetMissing(); len(missing) > 0 || m.GetError() != "" {
		why := errtext.WithRemedy(clusterpb.Plain(errors.New(m.GetError())).Error())
		c.note(fmt.Sprintf("run %d: %s on %s has given up sending %s to the driver, so they are missing below --dir: %s",
			m.GetRun(), m.GetTask(), c.execs.hellos[id].GetHost(), someOf(missing), why), true)
	}
	c.subs.wake()
	c.sweep(m.GetRun())
}

// sweep removes the incomplete files of a run when all its processes have ended and no executor
// has files of it to send. Loop only.
func (c *Coordinator) sweep(run int32) {
	if rec := c.runs.find(run); rec == nil || !rec.gone || c.filesPending(run) {
		return
	}
	c.work.Go(func() {
		if err := c.files.receiver.Sweep(run); err != nil {
			c.log.Warn("incomplete copies of files could not be removed; the complete ones are not affected", "dir", c.cfg.Dir,
				"run", run, "err", err)
		}
	})
}

func someOf(names []string) string {
	const most = 3
	switch {
	case len(names) == 0:
		return "its files"
	case len(names) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// filesPending returns whether files of a run (0: of any) are expected. For a lost executor it
// adds a note, once. Loop only.
func (c *Coordinator) filesPending(run int32) bool {
	any := false
	for id, o := range c.execs.pendingFiles {
		x := c.lc.Executor(id)
		if x.Attempt != o.attempt || x.State == lifecycle.ExecutorLost {
			delete(c.execs.pendingFiles, id)
			c.note(fmt.Sprintf("run %d: the executor of %s was lost before it had sent all files of the run to the driver: "+
				"those that it wrote last, such as checkpoints, are missing below --dir", o.run, x.Task), true)
			continue
		}
		any = any || run == 0 || o.run == run
	}
	return any
}

// filesLimit bounds how long a run's files are awaited.
const filesLimit = 3 * time.Minute

// awaitFiles waits until the files of a run (0: of any) have arrived. After filesLimit it adds
// a note and returns.
func (c *Coordinator) awaitFiles(ctx context.Context, run int32) {
	if err := c.awaitPending(ctx, run, filesLimit); errors.Is(err, context.DeadlineExceeded) {
		c.post(func() { c.noteLate(run) })
	}
}

// noteLate says that not all files of a run have arrived. Loop only.
func (c *Coordinator) noteLate(run int32) {
	c.noteOnce(fmt.Sprintf("files of run %d have not arrived from every executor within %s", run, filesLimit))
}

// settleFiles waits until the files of an attempt of a run that ended have arrived, sets aside the checkpoints that not
// every rank has saved, and lets the next attempt begin. Loop only.
func (c *Coordinator) settleFiles(run int32, attempt int) {
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.working, filesLimit)
		defer cancel()
		var notes []string
		waited := c.until(ctx, func() bool { return !c.filesPending(run) }, nil)
		if waited == nil { // otherwise a set may become whole
			var err error
			if notes, err = c.files.setAside(run, run, attempt, int(c.files.ranks)); err != nil {
				notes = append(notes, fmt.Sprintf("run %d: checkpoints that not every rank has saved could not be set aside, "+
					"so ranks may continue from different steps: %v", run, err))
			}
		}
		c.post(func() {
			if waited != nil {
				c.noteLate(run)
			}
			for _, text := range notes {
				c.note(text, true)
			}
			c.handle(lifecycle.FilesSettled{Run: run, Attempt: attempt})
		})
	})
}

// awaitPending waits until the files of a run (0: of any) have arrived. After limit it returns
// DeadlineExceeded.
func (c *Coordinator) awaitPending(ctx context.Context, run int32, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c.until(ctx, func() bool { return c.lc.Run() != nil && c.lc.Run().State.Open() || !c.filesPending(run) }, nil)
	if err != nil {
		return cmp.Or(ctx.Err(), err)
	}
	return nil
}

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
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// fetchChunk is the size of the pieces in which blobs travel, in bytes.
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

// receiver takes in and gives out the files of executors with disks of their own.
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
	return runfiles.NewReceiver(disk, c.cfg.folder(), first, func(warning string) { c.post(func() { c.noteOnce(warning); c.subs.wake() }) })
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

// owing is an executor that has yet to send what its task leaves.
type owing struct {
	run     int32
	attempt int // of the executor: another one has not these files
	launch  int32
}

// filesSent notes that they have come, or that some do not. Loop only.
func (c *Coordinator) filesSent(id cluster.ExecutorID, m *clusterpb.FilesSent) {
	o, ok := c.execs.owed[id]
	if !ok || o.run != m.GetRun() || o.launch != m.GetAttempt() {
		return // of an earlier launch, or said again
	}
	delete(c.execs.owed, id)
	if missing := m.GetMissing(); len(missing) > 0 || m.GetError() != "" {
		c.note(fmt.Sprintf("run %d: %s on %s could not send %s: %s", m.GetRun(), m.GetTask(), c.execs.hellos[id].GetHost(), someOf(missing), m.GetError()), true)
	}
	c.subs.wake()
	c.sweep(m.GetRun())
}

// sweep removes the incomplete files of a run when no process of it is left and no executor has
// files of it to send. Loop only.
func (c *Coordinator) sweep(run int32) {
	if rec := c.runs.find(run); rec == nil || !rec.gone || c.owesAny(run) {
		return
	}
	c.work.Go(func() {
		if err := c.files.receiver.Sweep(run); err != nil {
			c.log.Warn("sweep", "run", run, "err", err)
		}
	})
}

func someOf(names []string) string {
	const most = 3
	switch {
	case len(names) == 0:
		return "its files"
	case len(names) > most:
		return fmt.Sprintf("%s and %d other files", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

// owesAny tells whether files of a run (0: of any) are to come. Those of an executor
// that is lost never will: that is said once. Loop only.
func (c *Coordinator) owesAny(run int32) bool {
	any := false
	for id, o := range c.execs.owed {
		x := c.lc.Executor(id)
		if x.Attempt != o.attempt || x.State == lifecycle.ExecutorLost {
			delete(c.execs.owed, id)
			c.note(fmt.Sprintf("run %d: what %s had not yet sent is lost with its executor", o.run, x.Task), true)
			continue
		}
		any = any || run == 0 || o.run == run
	}
	return any
}

// filesMost is how long those who need a run's files wait for them.
const filesMost = 3 * time.Minute

// awaitFiles waits until the files of a run (0: of any) have come, while executors
// that ended their tasks still send. It gives up after filesMost, in words.
func (c *Coordinator) awaitFiles(ctx context.Context, run int32) {
	if err := c.awaitOwed(ctx, run, filesMost); errors.Is(err, context.DeadlineExceeded) {
		c.post(func() {
			c.noteOnce(fmt.Sprintf("files of run %d did not come from every executor within %s", run, filesMost))
		})
	}
}

// awaitOwed waits until the files of a run (0: of any) have come, for limit at the longest:
// then the error is DeadlineExceeded.
func (c *Coordinator) awaitOwed(ctx context.Context, run int32, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	changed, leave := c.subs.watch()
	defer leave()
	for {
		waits := false
		if err := c.call(ctx, func() { waits = (c.lc.Run() == nil || !c.lc.Run().State.Open()) && c.owesAny(run) }); err != nil || !waits {
			return err
		}
		if err := c.pause(ctx, changed); err != nil {
			return cmp.Or(ctx.Err(), err)
		}
	}
}

package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// files are the files of runs and for runs: where they lie, and who takes them in and gives
// them out. Any goroutine may use it.
type files struct {
	Directory
	Artifacts
	receiver *runfiles.Receiver // of executors with disks of their own
	depot    *ship.Store        // of what executors fetch
	events   eventLooks
}

func newFiles(cfg *Config, receiver *runfiles.Receiver) files {
	return files{Directory: cfg.Directory, Artifacts: cfg.Artifacts, receiver: receiver, depot: NewDepot(cfg.StateDir), events: eventLooks{asked: make(chan chan<- struct{})}}
}

// here is where something below the cluster's directory lies on this host.
func (f *files) here(name string) string {
	if rest, below := rundir.Below(name, f.Dir); below && f.Spool != nil {
		return filepath.Join(f.Spool.Folder(), filepath.FromSlash(rest))
	}
	return name
}

// placed gives a run's record the places where its files lie: another cluster may have
// known the directory by another name.
func (f *files) placed(st *clusterpb.RunStatus) { results.Place(st, f.Dir) }

// bring copies a folder of an earlier run that lies only elsewhere, for somebody who
// wants to see it.
func (f *files) bring(ctx context.Context, run int32, folder string) error {
	if f.Spool == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, bringShow)
	defer cancel()
	return f.Spool.Fetch(ctx, path.Join(rundir.Name(run), folder))
}

// hasCheckpoints tells whether a run has left any, here or elsewhere.
func (f *files) hasCheckpoints(run *clusterpb.RunStatus) (bool, error) {
	if f.Spool == nil {
		entries, err := os.ReadDir(run.GetCheckpointDir())
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return len(entries) > 0, err
	}
	files, err := f.Spool.Files(path.Join(rundir.Name(run.GetId()), "checkpoints"))
	return len(files) > 0, err
}

// folders makes the run's folders, with the checkpoints it takes up.
func (f *files) folders(ctx context.Context, p *runPlan) error {
	checkpoints := f.here(p.status.GetCheckpointDir())
	for _, d := range []string{f.here(p.status.GetLogDir()), f.here(p.status.GetExportDir()), filepath.Dir(checkpoints)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return status.Errorf(codes.FailedPrecondition, "make the run's folder: %v; reserve with another --dir", err)
		}
	}
	if p.from == nil {
		if err := os.MkdirAll(checkpoints, 0o700); err != nil {
			return status.Errorf(codes.FailedPrecondition, "make the run's folder: %v; reserve with another --dir", err)
		}
		return nil
	}
	if err := f.takeUp(ctx, p.from, checkpoints); err != nil {
		// Half a copy would be taken for checkpoints by the next --resume.
		err = errors.Join(err, os.RemoveAll(filepath.Dir(checkpoints)))
		return status.Errorf(codes.FailedPrecondition, "take up the checkpoints of run %d: %v", p.from.GetId(), err)
	}
	return nil
}

// takeUp copies a run's checkpoints into a folder, which gets its name when they are
// whole.
func (f *files) takeUp(ctx context.Context, from *clusterpb.RunStatus, into string) error {
	if f.Spool != nil {
		ctx, cancel := context.WithTimeout(ctx, bringLimit)
		defer cancel()
		if err := f.Spool.Fetch(ctx, rundir.Name(from.GetId())+"/checkpoints"); err != nil {
			return err
		}
	}
	aside := filepath.Join(filepath.Dir(into), ".taken-up")
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	if err := os.CopyFS(aside, untilDone{ctx, os.DirFS(f.here(from.GetCheckpointDir()))}); err != nil {
		return err
	}
	return os.Rename(aside, into)
}

// fetchShipped serves Fetch from the depot.
func (f *files) fetchShipped(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	r, err := f.depot.Open(req.GetSha256())
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "no blob %.64s: the run it belonged to is over", req.GetSha256())
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read blob %.12s: %v", req.GetSha256(), err)
	}
	defer r.Close()
	buffer := make([]byte, fetchChunk)
	for {
		n, err := r.Read(buffer)
		if n > 0 {
			if err := stream.Send(&clusterpb.Chunk{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Errorf(codes.Internal, "read blob %.12s: %v", req.GetSha256(), err)
		}
	}
}

// farewell carries everything before the cluster is gone; it returns in words what is
// not there then.
func (f *files) farewell() string {
	if f.Spool == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), deliverAtEnd)
	defer cancel()
	err := f.Spool.Flush(ctx, endPatience)
	if err != nil && f.Source != nil { // this host is the engine's, and keeps nothing
		return fmt.Sprintf("warning: not everything could be carried to %s: %v; the rest goes with the driver's container", f.Dir, err)
	}
	if err != nil {
		return fmt.Sprintf("warning: not everything could be carried to %s: %v; the rest lies on the driver's host in %s, and the next cluster there with that --dir carries it", f.Dir, err, f.Spool.Folder())
	}
	return ""
}

package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// files manages the files of runs and for runs on this host. Any goroutine may use it.
type files struct {
	Directory
	Artifacts
	receiver *runfiles.Receiver // receives the files of executors with their own disks
	shipped  *ship.Store        // contents of --files and --venv for executors
	events   eventLooks
	ranks    int32 // tasks of this cluster that train

	moving sync.Mutex // held while checkpoints are copied or set aside
}

// localPath returns the path on this host of a file or folder below the cluster's directory;
// name itself if it is not below that.
func (f *files) localPath(name string) string {
	if rest, below := rundir.Below(name, f.Dir); below && f.Spool != nil {
		return filepath.Join(f.Spool.Folder(), filepath.FromSlash(rest))
	}
	return name
}

// setPaths sets the paths in a run's status: another cluster may have used another name for the
// directory.
func (f *files) setPaths(st *clusterpb.RunStatus) { results.Place(st, f.Dir) }

// fetchFolder fetches a folder of an earlier run that is only in the remote directory, to be
// shown.
func (f *files) fetchFolder(ctx context.Context, run int32, folder string) error {
	if f.Spool == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, showFetchLimit)
	defer cancel()
	return f.Spool.Fetch(ctx, path.Join(rundir.Name(run), folder))
}

// hasCheckpoints returns whether a run has saved checkpoints, here or in the remote directory.
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

// folders creates the run's folders, with the checkpoints from which it resumes.
func (f *files) folders(ctx context.Context, p *runPlan) error {
	checkpoints := f.localPath(p.status.GetCheckpointDir())
	own := f.localPath(p.status.GetDir())
	if err := os.MkdirAll(filepath.Dir(own), 0o700); err == nil {
		p.made = os.Mkdir(own, 0o700) == nil // of an error the next call reports the reason, unless the folder exists
	}
	needed := []string{f.localPath(p.status.GetLogDir()), f.localPath(p.status.GetExportDir()), filepath.Dir(checkpoints)}
	if p.from == nil {
		needed = append(needed, checkpoints)
	}
	for _, d := range needed {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return status.Errorf(codes.FailedPrecondition, "make the run's folder: %v; reserve with another --dir", err)
		}
	}
	if p.from == nil {
		return nil
	}
	var err error
	if p.notes, err = f.copyCheckpoints(ctx, p.from, p.status.GetId(), checkpoints); err != nil {
		// The next --resume would use an incomplete copy.
		err = errors.Join(err, os.RemoveAll(asideOf(checkpoints)), f.discard(p))
		return status.Errorf(codes.FailedPrecondition, "copy the checkpoints of run %d: %v", p.from.GetId(), err)
	}
	return nil
}

// asideOf returns where checkpoints are copied before they get their name.
func asideOf(checkpoints string) string { return filepath.Join(filepath.Dir(checkpoints), ".taken-up") }

// discard removes the folder of a run that was planned and does not begin, if the plan has made it: another cluster may
// have a run of this number in a directory that both use.
func (f *files) discard(p *runPlan) error {
	if !p.made {
		return nil
	}
	return os.RemoveAll(f.localPath(p.status.GetDir()))
}

func (c *Coordinator) discard(p *runPlan) {
	if err := c.files.discard(p); err != nil {
		c.log.Warn("the folder of a run that has not begun cannot be removed, and stays without a record", "err", err)
	}
}

// copyCheckpoints copies a run's checkpoints into the folder of another run, which is renamed when they are complete,
// and sets aside those that not every rank has saved; notes are for users.
func (f *files) copyCheckpoints(ctx context.Context, from *clusterpb.RunStatus, run int32,
	into string,
) (notes []string, err error) {
	if f.Spool != nil {
		ctx, cancel := context.WithTimeout(ctx, resumeFetchLimit)
		defer cancel()
		if err := f.Spool.Fetch(ctx, rundir.Name(from.GetId())+"/checkpoints"); err != nil {
			return nil, err
		}
	}
	aside := asideOf(into)
	if err := os.Mkdir(aside, 0o700); err != nil {
		return nil, err
	}
	f.moving.Lock()
	err = os.CopyFS(aside, untilDone{ctx, os.DirFS(f.localPath(from.GetCheckpointDir()))})
	f.moving.Unlock()
	if err != nil {
		return nil, err
	}
	if err := os.Rename(aside, into); err != nil {
		return nil, err
	}
	return f.setAside(run, from.GetId(), 0, int(cmp.Or(from.GetRanks(), f.ranks)))
}

// setAside moves the checkpoints of a run that not every rank has saved, so that in the attempt after the given one all
// ranks continue from the same step. source is the run whose tasks wrote them. It returns lines for users.
func (f *files) setAside(run, source int32, attempt, ranks int) (notes []string, err error) {
	f.moving.Lock()
	defer f.moving.Unlock()
	// Of the source, because the times of copies say nothing. Where it cannot be read there is no note.
	if pattern, _ := f.receiver.ApartRanks(source); pattern != "" {
		notes = append(notes, "per-rank files without a step number ("+pattern+"): ranks may differ")
	}
	torn, err := f.receiver.SetAside(run, attempt, ranks)
	return append(torn, notes...), err
}

// ranksOf returns how many tasks of roles train.
func ranksOf(roles []*clusterpb.Role) (n int32) {
	for _, r := range roles {
		if cluster.Trains(r.GetName()) {
			n += r.GetCount()
		}
	}
	return n
}

// fetchShipped serves Fetch for contents of --files and --venv.
func (f *files) fetchShipped(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	r, err := f.shipped.Open(req.GetSha256())
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "the driver has it no more: the run to which it belongs is over")
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read it on the driver's host: %v", err)
	}
	defer r.Close()
	digest, err := runfiles.SendContent(r, func(data []byte) error { return stream.Send(&clusterpb.Chunk{Data: data}) },
		func(err error) error {
			return status.Errorf(codes.Internal, "read it on the driver's host: %v", err)
		})
	if err == nil && digest != req.GetSha256() {
		f.shipped.Discard(req.GetSha256())
		return status.Error(codes.DataLoss,
			"the driver's copy of it was damaged, and is removed: the next start makes another one")
	}
	return err
}

// flushRemote writes all files back before the cluster ends. It returns a warning for users if
// some are left.
func (f *files) flushRemote() string {
	if f.Spool == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), flushAtEnd)
	defer cancel()
	err := f.Spool.Flush(ctx, flushStall)
	if err != nil && f.Source != nil { // this host is a container, which is removed
		return fmt.Sprintf("warning: not all files could be written to %s: %v; the rest is lost with the driver's container",
			f.Dir, err)
	}
	if err != nil {
		return fmt.Sprintf("warning: not all files could be written to %s: %v; the rest is on the driver's host in %s, "+
			"and the next cluster there with this --dir writes it", f.Dir, err, f.Spool.Folder())
	}
	return ""
}

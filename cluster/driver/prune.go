package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Old runs are searched at most once per pruneEvery, for at most pruneLimit.
const (
	pruneEvery = 24 * time.Hour
	pruneLimit = 10 * time.Minute
)

// prune removes runs on HDFS that are older than the request's retention. It keeps those of
// live clusters, in a --dir that the user named, and on this host.
func (d *driver) prune(ctx context.Context) {
	age := time.Duration(d.req.GetRetentionMillis()) * time.Millisecond
	if age <= 0 || d.hosting != nil || !rundir.IsURI(d.dir) || results.Root(d.dir) == d.dir {
		return
	}
	stamp, err := pruneStamp(results.Root(d.dir))
	if err != nil {
		return
	}
	if last, err := os.Stat(stamp); err == nil && time.Since(last.ModTime()) < pruneEvery {
		return
	}
	remote, err := d.opt.OpenRemote(d.dir)
	if err != nil {
		d.log.Warn("old runs are not removed; the next cluster tries again", "err", err)
		return
	}
	defer remote.Close.Close()
	inUse, err := state.DirsInUse()
	if err != nil {
		d.log.Warn("old runs are not removed; the next cluster tries again", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	done, err := results.Prune(ctx, remote.Writer, results.Root(d.dir), time.Now().Add(-age),
		func(dir string) bool { return dir == d.dir || inUse(dir) })
	if err == nil {
		err = os.WriteFile(stamp, nil, 0o600) // only then: after an error the next driver tries again
	}
	if err != nil {
		d.log.Warn("old runs are not all removed; the next cluster tries again", "err", err)
	}
	if done.Runs+done.Folders > 0 {
		d.log.Info("removed old runs", "runs", done.Runs, "folders", done.Folders, "older than", age)
	}
}

// pruneStamp returns a file whose time is that of the last pruning of a folder by a driver of
// this host.
func pruneStamp(root string) (string, error) {
	home, err := state.Home()
	sum := sha256.Sum256([]byte(root))
	return filepath.Join(home, ".pruned-"+hex.EncodeToString(sum[:8])), err
}

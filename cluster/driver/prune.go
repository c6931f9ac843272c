package driver

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Old runs are looked for once in pruneEvery, for at most pruneLimit.
const (
	pruneEvery = 24 * time.Hour
	pruneLimit = 10 * time.Minute
)

// prune removes old runs beside the cluster's own on HDFS, as the request says. Results in a
// folder that a person chose, and those on this host, are left alone.
func (d *driver) prune(ctx context.Context) {
	age := time.Duration(d.req.GetRetentionMillis()) * time.Millisecond
	if age <= 0 || d.hosting != nil || !rundir.IsURI(d.dir) || results.Root(d.dir) == d.dir || !pruneDue() {
		return
	}
	remote, err := d.opt.Elsewhere(d.dir)
	if err != nil {
		d.log.Warn("look for old runs", "err", err)
		return
	}
	defer remote.Close.Close()
	inUse, err := state.DirsInUse()
	if err != nil {
		d.log.Warn("look for old runs", "err", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	done, err := results.Prune(ctx, remote.Carry, results.Root(d.dir), time.Now().Add(-age), func(dir string) bool { return dir == d.dir || inUse(dir) })
	if err != nil {
		d.log.Warn("remove old runs", "err", err)
	}
	if done.Runs+done.Folders > 0 {
		d.log.Info("removed old runs", "runs", done.Runs, "folders", done.Folders, "older than", age)
	}
}

// pruneDue returns whether no driver of this host has looked for old runs lately, and notes
// that this one does.
func pruneDue() bool {
	home, err := state.Home()
	if err != nil {
		return false
	}
	stamp := filepath.Join(home, ".pruned")
	if fi, err := os.Stat(stamp); err == nil && time.Since(fi.ModTime()) < pruneEvery {
		return false
	}
	return os.WriteFile(stamp, nil, 0o600) == nil
}

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

// Old runs are searched at most once per pruneEvery, for at most pruneLimit.
const (
	pruneEvery = 24 * time.Hour
	pruneLimit = 10 * time.Minute
)

// prune removes runs on HDFS that are older than the request's retention. It keeps those of
// live clusters, in a --dir that the user named, and on this host.
func (d *driver) prune(ctx context.Context) {
	age := time.Duration(d.req.GetRetentionMillis()) * time.Millisecond
	if age <= 0 || d.hosting != nil || !rundir.IsURI(d.dir) || results.Root(d.dir) == d.dir || !pruneDue() {
		return
	}
	remote, err := d.opt.OpenRemote(d.dir)
	if err != nil {
		d.log.Warn("look for old runs", "err", err)
		return
	}
	defer remote.Close.Close()
	live := map[string]bool{d.dir: true}
	states, err := state.List()
	if err != nil {
		d.log.Warn("look for old runs", "err", err)
		return
	}
	for _, s := range states {
		live[s.Dir] = true
	}
	ctx, cancel := context.WithTimeout(ctx, pruneLimit)
	defer cancel()
	done, err := results.Prune(ctx, remote.Writer, results.Root(d.dir), time.Now().Add(-age), func(dir string) bool { return live[dir] })
	if err != nil {
		d.log.Warn("remove old runs", "err", err)
	}
	if done.Runs+done.Folders > 0 {
		d.log.Info("removed old runs", "runs", done.Runs, "folders", done.Folders, "older than", age)
	}
}

// pruneDue returns whether no driver of this host has pruned within pruneEvery, and records
// that this one does now.
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

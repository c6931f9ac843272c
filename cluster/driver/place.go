package driver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
)

// Elsewhere is a file system on which a cluster's directory lies.
type Elsewhere struct {
	// Carry is patient for a moment only, since what it cannot carry is tried again;
	// Ask, for what somebody waits for, gives up sooner.
	Carry, Ask spool.Remote
	Dir        string // in full
	DefaultFS  string // what ctx.absolute_path() begins with
	Close      io.Closer
}

// lookLimit is how long it may take to see what earlier clusters left.
const lookLimit = 30 * time.Second

// place finds out where the runs are to lie, and which was the last one there: a
// directory that is used again keeps its runs.
func (d *driver) place(ctx context.Context) error {
	d.dir = d.req.GetDir()
	if !cluster.IsURI(d.dir) {
		if !filepath.IsAbs(d.dir) {
			return fmt.Errorf("the directory %q is not absolute", d.dir)
		}
		if err := os.MkdirAll(d.dir, 0o755); err != nil {
			return fmt.Errorf("make the cluster's directory: %w; choose another --dir", err)
		}
		d.lastRun = lastRun(d.dir)
		return nil
	}
	if d.opt.Elsewhere == nil {
		return fmt.Errorf("not yet: --dir %s", d.dir)
	}
	var err error
	if d.elsewhere, err = d.opt.Elsewhere(d.dir); err != nil {
		return fmt.Errorf("--dir %s: %w", d.dir, err)
	}
	d.dir = d.elsewhere.Dir
	if d.old == nil { // a driver that takes over goes on, whatever HDFS says
		if err := spool.Check(ctx, d.elsewhere.Ask, d.dir); err != nil {
			return err
		}
	}
	home, err := cluster.StateHome()
	if err != nil {
		return err
	}
	if d.spool, err = spool.Open(ctx, spool.Config{Remote: d.elsewhere.Carry, Dir: d.dir, Parent: home, Log: d.log}); err != nil {
		return err
	}
	if d.old != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if d.lastRun, err = d.spool.Look(ctx); err != nil {
		return fmt.Errorf("--dir %s: %w", d.dir, err)
	}
	return nil
}

// leave ends the use of the directory.
func (d *driver) leave() error {
	var err error
	if d.spool != nil {
		err = d.spool.Close()
		d.spool = nil
	}
	if d.elsewhere.Close != nil {
		_ = d.elsewhere.Close.Close() // of connections that nobody uses
		d.elsewhere.Close = nil
	}
	return err
}

// lastRun is the highest run already below a folder.
func lastRun(dir string) int32 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	var last int32
	for _, e := range entries {
		var n int32
		if _, err := fmt.Sscanf(e.Name(), "run-%03d", &n); err == nil && n > last {
			last = n
		}
	}
	return last
}

package driver

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/proxy"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Elsewhere is a file system on which a cluster's directory lies.
type Elsewhere struct {
	// Carry is patient for a moment only, since what it cannot carry is tried again;
	// Ask, for what somebody waits for, gives up sooner.
	Carry spool.Remote
	Ask   Asked
	Dir   string // in full
	Close io.Closer
}

// Asked is a file system as somebody uses it who waits.
type Asked interface {
	spool.Checked
	proxy.Remote
}

// Hadoop is what is told to programs and agents.
type Hadoop struct {
	DefaultFS  string // what ctx.absolute_path() begins with; "" for this host's disk
	User       string
	Properties map[string]string // those that clients of HDFS need
}

// lookLimit is how long it may take to see what earlier clusters left.
const lookLimit = 30 * time.Second

// place finds out where the runs are to lie, and which was the last one there: a
// directory that is used again keeps its runs.
func (d *driver) place(ctx context.Context) error {
	d.dir = d.req.GetDir()
	home := d.dir == "" && d.engine.Hadoop // the user's on HDFS
	if home {
		d.dir = "tfcluster-runs/" + d.name
	}
	if !home && !rundir.IsURI(d.dir) {
		if !filepath.IsAbs(d.dir) {
			return fmt.Errorf("the directory %q is not absolute", d.dir)
		}
		if err := os.MkdirAll(d.dir, 0o700); err != nil {
			return fmt.Errorf("make the cluster's directory: %w; choose another --dir", err)
		}
		d.lastRun = lastRun(d.dir)
		return nil
	}
	if d.opt.Elsewhere == nil {
		return fmt.Errorf("not yet: --dir %s", d.dir)
	}
	var err error
	d.elsewhere, err = d.opt.Elsewhere(d.dir)
	switch {
	case err != nil && home: // nobody gave --dir
		return err
	case err != nil:
		return fmt.Errorf("--dir %s: %w", d.dir, err)
	}
	d.dir = d.elsewhere.Dir
	if home {
		d.req.Dir = d.dir
	}
	fresh := d.old == nil          // a driver that takes over goes on, whatever HDFS says
	if fresh && d.hosting == nil { // whoever had the engine start this one has checked it
		if err := spool.Check(ctx, d.elsewhere.Ask, d.dir); err != nil {
			return err
		}
	}
	parent, err := state.Home()
	if err != nil {
		return err
	}
	if d.spool, err = spool.Open(ctx, spool.Config{Remote: d.elsewhere.Carry, Dir: d.dir, Parent: parent, Log: d.log}); err != nil {
		return err
	}
	if !fresh && d.hosting == nil { // where the engine starts drivers the spool is empty
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookLimit)
	defer cancel()
	if d.lastRun, err = d.spool.Scan(ctx); err != nil {
		return fmt.Errorf("--dir %s: %w", d.dir, err)
	}
	if d.old != nil {
		d.takeUp(ctx)
	}
	return nil
}

// takeUp brings what a hosted driver's predecessor had of the last run and still grows:
// agents send what follows it.
func (d *driver) takeUp(ctx context.Context) {
	run := filepath.Base(rundir.Dir(d.dir, d.old.LastRun))
	for _, folder := range []string{"tasks", "logs"} {
		if err := d.spool.Fetch(ctx, run+"/"+folder); err != nil {
			d.log.Warn("bring what the last driver had", "folder", run+"/"+folder, "err", err)
		}
	}
}

// useHadoop has this process use the Hadoop that the request names. The driver may be started
// by a kernel where a cell said which Hadoop, or by attach from a shell that has none; all that
// it asks of HDFS is then of the same Hadoop as its engine.
func (d *driver) useHadoop() error {
	if !d.engine.Hadoop || d.hosting != nil { // a container has its own
		return nil
	}
	for key, name := range map[string]string{cluster.EngineConfDir: "HADOOP_CONF_DIR", cluster.EngineUser: "HADOOP_USER_NAME"} {
		if v := d.req.GetEngine()[key]; v != "" {
			if err := os.Setenv(name, v); err != nil {
				return fmt.Errorf("use the Hadoop of the request: set %s: %w", name, err)
			}
		}
	}
	return nil
}

// hadoop tells programs and agents of the driver's Hadoop: where runs lie on HDFS, and
// where the engine is Hadoop's or may be.
func (d *driver) hadoop(cfg *coordinator.Config) {
	if d.opt.Hadoop == nil || d.spool == nil && d.engine.OnThisHost {
		return
	}
	h, err := d.opt.Hadoop(d.dir)
	if err != nil {
		d.log.Warn("Hadoop's configuration", "err", err)
		return
	}
	cfg.DefaultFS = h.DefaultFS
	cfg.Hadoop = &clusterpb.HadoopClient{User: h.User, Properties: h.Properties}
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
		if n, ok := rundir.Number(e.Name()); ok {
			last = max(last, n)
		}
	}
	return last
}

// placeHosted sees to it that the results can go where a driver elsewhere reaches them.
func (d *driver) placeHosted(ctx context.Context) error {
	dir := d.req.GetDir()
	if dir == "" {
		dir = "tfcluster-runs/" + d.name
	} else if !rundir.IsURI(dir) {
		return fmt.Errorf("--dir %s: with --managed the cluster's driver is not on this machine: give a folder on hdfs://, or none", dir)
	}
	if d.opt.Elsewhere == nil {
		return fmt.Errorf("not yet: --dir %s", dir)
	}
	e, err := d.opt.Elsewhere(dir)
	if err != nil {
		return fmt.Errorf("--dir %s: %w", dir, err)
	}
	d.dir = e.Dir
	if d.old == nil {
		err = spool.Check(ctx, e.Ask, e.Dir)
	}
	_ = e.Close.Close() // of connections that nobody uses any more
	if err == nil && d.req.GetDir() == "" {
		d.req.Dir = d.dir
	}
	return err
}

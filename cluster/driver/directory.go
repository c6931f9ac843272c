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
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/proxy"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles/spool"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// RemoteDir is a cluster's directory on a remote file system, and its connections.
type RemoteDir struct {
	// Writer is for background writes, which are retried later; Reader, for which a user waits,
	// has shorter timeouts.
	Writer spool.Remote
	Reader RemoteReader
	Dir    string // in full
	Close  io.Closer
}

// RemoteReader reads a remote directory while a user waits.
type RemoteReader interface {
	spool.Checked
	proxy.Remote
}

// Hadoop is the Hadoop configuration for programs and agents.
type Hadoop struct {
	DefaultFS  string // the prefix of ctx.absolute_path(); "" for this host's disk
	User       string
	Properties map[string]string // needed by HDFS clients
}

// scanLimit bounds listing the runs of earlier clusters in a remote directory.
const scanLimit = 30 * time.Second

// openDirectory opens the directory for the runs, and finds the last run in it: the runs of
// earlier clusters are kept.
func (d *driver) openDirectory(ctx context.Context) error {
	d.dir = d.req.GetDir()
	home := d.dir == "" && d.engine.Hadoop // the default is below the user's home on HDFS
	if home {
		d.dir = "tfcluster-runs/" + d.name
	}
	if !home && !rundir.IsURI(d.dir) {
		if !filepath.IsAbs(d.dir) {
			return fmt.Errorf("--dir %q is not absolute: give a path that begins with /, or hdfs://…", d.dir)
		}
		if err := os.MkdirAll(d.dir, 0o700); err != nil {
			return fmt.Errorf("--dir cannot be made: %w; choose another one", err)
		}
		d.lastRun = lastRun(d.dir)
		return nil
	}
	var err error
	if d.remote, err = d.openRemote(d.dir, "a local folder, or hdfs://…"); err != nil {
		return err
	}
	fresh := d.old == nil          // a driver that takes over goes on even without HDFS
	if fresh && d.hosting == nil { // a hosted driver's proxy has checked it
		if err := spool.Check(ctx, d.remote.Reader, d.dir); err != nil {
			return err
		}
	}
	parent, err := state.Home()
	if err != nil {
		return err
	}
	if d.spool, err = spool.Open(ctx, spool.Config{
		Remote: d.remote.Writer, Dir: d.dir, Parent: parent, Temporary: d.hosting != nil, Log: d.log,
	}); err != nil {
		return err
	}
	if !fresh && d.hosting == nil { // only a hosted driver begins with an empty spool
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, scanLimit)
	defer cancel()
	if d.lastRun, err = d.spool.Scan(ctx); err != nil {
		return fmt.Errorf("--dir %s: %w", d.dir, err)
	}
	if d.old != nil {
		d.fetchLastRun(ctx)
	}
	return nil
}

// fetchLastRun fetches the append-only files of the last run that a hosted driver's
// predecessor wrote: agents only send what follows.
func (d *driver) fetchLastRun(ctx context.Context) {
	run := filepath.Base(rundir.Dir(d.dir, d.old.LastRun))
	for _, folder := range []string{"tasks", "logs"} {
		if err := d.spool.Fetch(ctx, run+"/"+folder); err != nil {
			d.log.Warn("logs and history lack what the last driver wrote of the last run", "folder", run+"/"+folder, "err", err)
		}
	}
}

// useHadoop sets this process's environment to the Hadoop configuration of the request, so
// that HDFS and engine are of one Hadoop whether a kernel or a shell started the driver.
func (d *driver) useHadoop() {
	if !d.engine.Hadoop || d.hosting != nil { // a container has its own
		return
	}
	for key, name := range map[string]string{
		cluster.EngineConfDir: "HADOOP_CONF_DIR", cluster.EngineUser: "HADOOP_USER_NAME",
	} {
		if v := d.req.GetEngine()[key]; v != "" {
			_ = os.Setenv(name, v) // fails only for a name or a value that no command can give
		}
	}
}

// hadoop sets the Hadoop configuration for programs and agents, if the runs are on HDFS or
// the executors on other hosts.
func (d *driver) hadoop(cfg *coordinator.Config) {
	if d.opt.Hadoop == nil || d.spool == nil && d.engine.OnThisHost {
		return
	}
	h, err := d.opt.Hadoop(d.dir)
	if err != nil {
		d.log.Warn("programs and agents get no Hadoop configuration of the driver's, and use that of their hosts", "err", err)
		return
	}
	cfg.DefaultFS = h.DefaultFS
	cfg.Hadoop = &clusterpb.HadoopClient{User: h.User, Properties: h.Properties}
}

// closeDirectory flushes the spool and closes the remote directory. It may be called again.
func (d *driver) closeDirectory() error {
	var err error
	if d.spool != nil {
		err = d.spool.Close()
		d.spool = nil
	}
	if d.remote.Close != nil {
		_ = d.remote.Close.Close() // unused connections
		d.remote.Close = nil
	}
	return err
}

// lastRun returns the highest run number in a folder; 0 if there is none.
func lastRun(dir string) int32 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return rundir.Last(entries)
}

// openRemote opens the cluster's directory on a remote file system, and stores its full name. instead is what users
// can give if that is not supported.
func (d *driver) openRemote(dir, instead string) (RemoteDir, error) {
	if d.opt.OpenRemote == nil {
		return RemoteDir{}, fmt.Errorf("--dir %s: this file system is not supported; give %s", dir, instead)
	}
	remote, err := d.opt.OpenRemote(dir)
	if err != nil && d.req.GetDir() == "" { // nobody gave --dir
		return RemoteDir{}, fmt.Errorf("the results are written to HDFS, unless --dir names another folder: %w", err)
	}
	if err != nil {
		return RemoteDir{}, fmt.Errorf("--dir %s: %w", dir, err)
	}
	d.dir = remote.Dir
	if d.req.GetDir() == "" {
		d.req.Dir = d.dir
	}
	return remote, nil
}

// checkRemoteDirectory checks, for a driver that the engine will run, that it can write its
// results to HDFS.
func (d *driver) checkRemoteDirectory(ctx context.Context) error {
	dir := d.req.GetDir()
	if dir == "" {
		dir = "tfcluster-runs/" + d.name
	} else if !rundir.IsURI(dir) {
		return fmt.Errorf(
			"--dir %s: with --managed the cluster's driver is not on this machine: give a folder on hdfs://, or none", dir)
	}
	e, err := d.openRemote(dir, "a folder on hdfs://")
	if err != nil {
		return err
	}
	defer e.Close.Close() // unused connections
	if d.old != nil {
		return nil
	}
	return spool.Check(ctx, e.Reader, e.Dir)
}

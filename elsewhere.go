package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// onHDFS is HDFS as the driver uses it.
type onHDFS struct{ *hdfs.FS }

// Open implements spool.Remote.
func (h onHDFS) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return h.FS.Open(ctx, name)
}

// How long one operation goes on while HDFS is away: where a person waits, and where
// it is tried again anyway.
const (
	askBridge   = 3 * time.Second
	carryBridge = 5 * time.Second
	carryStall  = 10 * time.Second
)

// onElsewhere gives the file system of a --dir that is a URI.
func onElsewhere(dir string) (driver.Elsewhere, error) {
	scheme, _, _ := strings.Cut(dir, "://")
	if scheme != "hdfs" {
		return driver.Elsewhere{}, fmt.Errorf("results are kept in a folder of this machine or on hdfs://, not on %s://", scheme)
	}
	conf, err := hadoopconf.FromEnvironment()
	if errors.Is(err, hadoopconf.ErrNone) {
		conf, err = hadoopconf.New(nil), nil // a URI with an authority needs none
	}
	if err != nil {
		return driver.Elsewhere{}, err
	}
	user, err := hadoopconf.User()
	if err != nil {
		return driver.Elsewhere{}, err
	}
	ask, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: askBridge})
	if err != nil {
		return driver.Elsewhere{}, err
	}
	carry, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: carryBridge, Stall: carryStall})
	if err != nil {
		return driver.Elsewhere{}, err
	}
	full, err := ask.URI(dir)
	if err != nil {
		if conf.Dir() == "" && strings.HasPrefix(dir, "hdfs:///") {
			err = errors.New("it names no NameNode, and there is no Hadoop configuration: give hdfs://HOST:PORT/…, or set HADOOP_CONF_DIR for JupyterLab to the folder that holds core-site.xml")
		}
		return driver.Elsewhere{}, err
	}
	path, err := ask.Path(dir)
	if err != nil {
		return driver.Elsewhere{}, err
	}
	defaultFS, err := ask.URI("/")
	if err != nil { // no default: the directory's own
		defaultFS = strings.TrimSuffix(full, path)
	}
	return driver.Elsewhere{
		Carry: onHDFS{carry}, Ask: onHDFS{ask}, Dir: full, DefaultFS: strings.TrimSuffix(defaultFS, "/"), Close: closers{ask, carry},
	}, nil
}

// closers are closed one after the other.
type closers []io.Closer

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

// Package hdfsdir gives the driver, and whoever reads what a cluster left, a directory on HDFS:
// its file system under the names that they know, and Hadoop's configuration for tasks.
package hdfsdir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// fileSystem is HDFS as the driver uses it.
type fileSystem struct{ *hdfs.FS }

// Open implements spool.Remote and proxy.Remote.
func (h fileSystem) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return h.FS.Open(ctx, name)
}

// How long one operation goes on while HDFS is away: where a person waits, and where
// it is tried again anyway.
const (
	askBridge   = 3 * time.Second
	carryBridge = 5 * time.Second
	carryStall  = 10 * time.Second
)

// Open gives the file system of a --dir that is a URI, or a path below the user's home on
// HDFS, by the configuration and as the user of the environment.
func Open(dir string) (driver.Elsewhere, error) { return OpenAs(dir, "", "") }

// OpenAs is Open by another configuration and as another user than the environment's, where
// they are not "".
func OpenAs(dir, confDir, user string) (driver.Elsewhere, error) {
	if scheme, _, ok := strings.Cut(dir, "://"); ok && scheme != "hdfs" {
		return driver.Elsewhere{}, fmt.Errorf("results are kept in a folder of this machine or on hdfs://, not on %s://", scheme)
	}
	conf, err := hadoopconf.FromEnvironment()
	if confDir != "" {
		conf, err = hadoopconf.Load(confDir)
	}
	if errors.Is(err, hadoopconf.ErrNone) && strings.Contains(dir, "://") {
		conf, err = hadoopconf.New(nil), nil // a URI with an authority needs none
	}
	if err == nil && user == "" {
		user, err = hadoopconf.User()
	}
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
	return driver.Elsewhere{Carry: fileSystem{carry}, Ask: fileSystem{ask}, Dir: full, Close: closers{ask, carry}}, nil
}

// forClients begin the names of the properties that a client of HDFS needs.
var forClients = []string{
	"fs.default", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.use.datanode.hostname",
	"dfs.data.transfer.protection", "dfs.encrypt.data.transfer", "hadoop.security.authentication",
}

// Configuration is the configuration of this host as programs and agents are told of it.
// Where there is none, a directory on HDFS says which HDFS is the default.
func Configuration(dir string) (driver.Hadoop, error) {
	conf, err := hadoopconf.FromEnvironment()
	if errors.Is(err, hadoopconf.ErrNone) {
		conf, err = hadoopconf.New(nil), nil
	}
	if err != nil {
		return driver.Hadoop{}, err
	}
	h := driver.Hadoop{Properties: conf.WithPrefix(forClients...)}
	if h.User, err = hadoopconf.User(); err != nil {
		return driver.Hadoop{}, err
	}
	fs := conf.Or("fs.defaultFS", conf.Get("fs.default.name"))
	if u, err := url.Parse(dir); !strings.HasPrefix(fs, "hdfs://") && err == nil && u.Scheme == "hdfs" {
		fs = "hdfs://" + u.Host
		h.Properties["fs.defaultFS"] = fs
	}
	if strings.HasPrefix(fs, "hdfs://") || strings.HasPrefix(fs, "viewfs://") {
		h.DefaultFS = strings.TrimRight(fs, "/")
	}
	return h, nil
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

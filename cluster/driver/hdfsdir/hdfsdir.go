// Package hdfsdir connects the driver, and readers of a cluster's results, to a directory on HDFS. It also
// returns the Hadoop configuration for tasks.
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

// fileSystem adapts hdfs.FS to the driver's interfaces.
type fileSystem struct{ *hdfs.FS }

// Open implements spool.Remote and proxy.Remote.
func (h fileSystem) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	return h.FS.Open(ctx, name)
}

// How long an operation is retried while HDFS is unreachable: reads, for which a user waits, and writes,
// which are repeated later.
const (
	readRetry  = 3 * time.Second
	writeRetry = 5 * time.Second
	writeStall = 10 * time.Second
)

// Open returns the file system of a --dir that is a URI, or a path below the user's home on HDFS, with the
// configuration and the user of the environment.
func Open(dir string) (driver.RemoteDir, error) { return OpenAs(dir, "", "") }

// OpenAs is like Open with another configuration and another user, unless they are "".
func OpenAs(dir, confDir, user string) (driver.RemoteDir, error) {
	if scheme, _, ok := strings.Cut(dir, "://"); ok && scheme != "hdfs" {
		return driver.RemoteDir{},
			fmt.Errorf("results can be stored in a folder of this machine or on hdfs://, not on %s://", scheme)
	}
	conf, err := hadoopconf.FromEnvironment()
	if confDir != "" {
		conf, err = hadoopconf.Load(confDir)
	}
	if errors.Is(err, hadoopconf.ErrNone) && strings.Contains(dir, "://") {
		conf, err = hadoopconf.New(nil), nil // a URI with an authority needs no configuration
	}
	if err == nil && user == "" {
		user, err = hadoopconf.User()
	}
	if err != nil {
		return driver.RemoteDir{}, err
	}
	reader, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: readRetry})
	if err != nil {
		return driver.RemoteDir{}, err
	}
	writer, err := hdfs.New(hdfs.Config{Conf: conf, User: user, Bridge: writeRetry, Stall: writeStall})
	if err != nil {
		return driver.RemoteDir{}, err
	}
	full, err := reader.URI(dir)
	if err != nil {
		if conf.Dir() == "" && strings.HasPrefix(dir, "hdfs:///") {
			err = errors.New("it has no NameNode, and there is no Hadoop configuration: use hdfs://HOST:PORT/…, " +
				"or set HADOOP_CONF_DIR for JupyterLab to the folder with core-site.xml")
		}
		return driver.RemoteDir{}, err
	}
	return driver.RemoteDir{
		Writer: fileSystem{writer}, Reader: fileSystem{reader}, Dir: full, Close: multiCloser{reader, writer},
	}, nil
}

// clientProperties are the prefixes of the properties that a client of HDFS needs.
var clientProperties = []string{
	"fs.default", "dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.use.datanode.hostname",
	"dfs.data.transfer.protection", "dfs.encrypt.data.transfer", "hadoop.security.authentication",
}

// Configuration returns this host's configuration for programs and agents. Without one, a directory on HDFS
// determines the default file system.
func Configuration(dir string) (driver.Hadoop, error) {
	conf, err := hadoopconf.FromEnvironment()
	if errors.Is(err, hadoopconf.ErrNone) {
		conf, err = hadoopconf.New(nil), nil
	}
	if err != nil {
		return driver.Hadoop{}, err
	}
	h := driver.Hadoop{Properties: conf.WithPrefix(clientProperties...)}
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

// multiCloser closes several clients.
type multiCloser []io.Closer

func (c multiCloser) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

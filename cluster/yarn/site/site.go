package site

import (
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// ReachLimit is how long a peer may take to be reached before anything is reserved.
const ReachLimit = 4 * time.Second

// Site is the YARN that a request means.
type Site struct {
	Conf *hadoopconf.Conf
	User string
}

// Find reads which Hadoop a request means, and as whom it is asked: the notebook's Hadoop may
// be another than that of this process's environment.
func Find(r *clusterpb.ReserveRequest) (s Site, err error) {
	if dir := r.GetEngine()[cluster.EngineConfDir]; dir != "" {
		if s.Conf, err = hadoopconf.Load(dir); errors.Is(err, hadoopconf.ErrNone) {
			err = fmt.Errorf("HADOOP_CONF_DIR=%s has no core-site.xml: %w", dir, err)
		}
	} else {
		s.Conf, err = hadoopconf.FromEnvironment()
	}
	if err != nil {
		return Site{}, err
	}
	if s.User = r.GetEngine()[cluster.EngineUser]; s.User == "" {
		s.User, err = hadoopconf.User()
	}
	return s, err
}

// NewHDFS is for what is shipped.
func NewHDFS(s Site) (*hdfs.FS, error) {
	return hdfs.New(hdfs.Config{Conf: s.Conf, User: s.User, Bridge: ReachLimit})
}

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

// ReachLimit is how long a peer may be unreachable before anything is reserved.
const ReachLimit = 4 * time.Second

// Site is a Hadoop configuration and the user that calls its services.
type Site struct {
	Conf *hadoopconf.Conf
	User string
}

// Find returns the site of a request. The request's configuration folder and user, which are those of the
// notebook, override this process's environment.
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

// NewHDFS returns a client of the site's HDFS. The caller closes it.
func NewHDFS(s Site) (*hdfs.FS, error) {
	return hdfs.New(hdfs.Config{Conf: s.Conf, User: s.User, Bridge: ReachLimit})
}

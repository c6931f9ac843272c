package yarn

import (
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
)

// reachLimit is how long a peer may take to be reached before anything is reserved.
const reachLimit = 4 * time.Second

// site is the YARN that a request means.
type site struct {
	conf *hadoopconf.Conf
	user string
}

// Keys of a request, as magics writes them: the notebook's Hadoop may be another than
// that of this process's environment.
const (
	engineConf = "conf-dir"
	engineUser = "user"
)

func findSite(r *clusterpb.ReserveRequest) (s site, err error) {
	if dir := r.GetEngine()[engineConf]; dir != "" {
		if s.conf, err = hadoopconf.Load(dir); errors.Is(err, hadoopconf.ErrNone) {
			err = fmt.Errorf("HADOOP_CONF_DIR=%s has no core-site.xml: %w", dir, err)
		}
	} else {
		s.conf, err = hadoopconf.FromEnvironment()
	}
	if err != nil {
		return site{}, err
	}
	if s.user = r.GetEngine()[engineUser]; s.user == "" {
		s.user, err = hadoopconf.User()
	}
	return s, err
}

// newHDFS is for what is shipped.
func newHDFS(s site) (*hdfs.FS, error) {
	return hdfs.New(hdfs.Config{Conf: s.conf, User: s.user, Bridge: reachLimit})
}

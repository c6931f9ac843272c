package yarn

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/hdfs"
	"github.com/tfcluster/tfcluster/cluster/hdfs/hadoopconf"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Diagnose checks the Hadoop configuration of a request, and YARN and HDFS, which may take a few seconds
// each if they do not answer.
func Diagnose(ctx context.Context, r *clusterpb.ReserveRequest) []cluster.Check {
	s, err := site.Find(r)
	if errors.Is(err, hadoopconf.ErrNone) && r.GetEngine()[cluster.EngineConfDir] == "" {
		return []cluster.Check{{What: "Hadoop", Found: "not configured (needed for --backend yarn: HADOOP_CONF_DIR)"}}
	}
	if err != nil {
		return []cluster.Check{{
			What: "Hadoop", Found: err.Error(), Remedy: "set HADOOP_CONF_DIR to the folder with core-site.xml and yarn-site.xml",
		}}
	}
	found := fmt.Sprintf("%s, as %s", s.Conf.Dir(), s.User)
	if p := s.Conf.Get("hadoop.rpc.protection"); p != "" {
		found += ", hadoop.rpc.protection " + p
	}
	checks := []cluster.Check{{What: "Hadoop", Found: found}}
	if s.Conf.Get("hadoop.security.authentication") == "kerberos" {
		checks[0].Found += ", Kerberos"
		checks[0].Remedy = "tfcluster does not support Kerberos yet: use --backend spark --master yarn"
		return checks
	}
	return append(checks, diagnoseYARN(ctx, s, r), diagnoseHDFS(ctx, s))
}

func diagnoseYARN(ctx context.Context, s site.Site, r *clusterpb.ReserveRequest) cluster.Check {
	f := cluster.Check{What: "YARN"}
	managers, err := protocol.ResourceManagers(s.Conf)
	if err != nil {
		f.Found, f.Remedy = err.Error(), "take yarn-site.xml from the cluster"
		return f
	}
	f.Found = "ResourceManager " + strings.Join(managers, ", ")
	if err := checkReachable(ctx, s.Conf); err != nil {
		f.Found, f.Remedy = err.Error(), "start it, or correct yarn.resourcemanager.address"
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, 2*site.ReachLimit)
	defer cancel()
	const seeLog = "correct what it names, or see the ResourceManager's log"
	client, err := protocol.NewClient(s.Conf, s.User, site.ReachLimit)
	if err != nil {
		f.Found, f.Remedy = f.Found+": "+err.Error(), seeLog
		return f
	}
	defer client.Close()
	nodes, err := client.NodeReports(ctx)
	if err != nil {
		f.Found, f.Remedy = f.Found+": "+err.Error(), seeLog
		return f
	}
	f.Found += fmt.Sprintf(", %d nodes", len(nodes))
	if len(nodes) == 0 {
		f.Remedy = "no NodeManager runs: start one"
		return f
	}
	free := &yarnpb.Resource{}
	for _, n := range nodes {
		if left := minus(n.GetCapability(), n.GetUsed()); left.GetMemory() > free.GetMemory() {
			free = left
		}
	}
	f.Found += ", the freest has " + describeResource(free)
	name := queue(cluster.Request{Reserve: r})
	q, err := client.Queue(ctx, name)
	switch {
	case errors.Is(err, protocol.ErrQueue):
		f.Found, f.Remedy = f.Found+": "+err.Error(), "set your queue with --queue"
	case err != nil:
		f.Found, f.Remedy = f.Found+": "+err.Error(), seeLog
	case q.GetState() != yarnpb.QueueState_Q_RUNNING:
		f.Remedy = fmt.Sprintf("queue %s takes no applications: set another one with --queue", name)
	default:
		f.Found += fmt.Sprintf("; queue %s is %.0f %% full", name, 100*q.GetCurrentCapacity())
	}
	return f
}

func diagnoseHDFS(ctx context.Context, s site.Site) cluster.Check {
	f := cluster.Check{What: "HDFS"}
	ctx, cancel := context.WithTimeout(ctx, 2*site.ReachLimit)
	defer cancel()
	store, err := site.NewHDFS(s)
	if err != nil {
		f.Found, f.Remedy = err.Error(), "correct fs.defaultFS and the HDFS settings of the Hadoop configuration"
		return f
	}
	defer store.Close()
	home, err := store.URI(".")
	if err != nil {
		f.Found, f.Remedy = err.Error(),
			"set fs.defaultFS in core-site.xml to the cluster's HDFS: containers fetch this program from there"
		return f
	}
	f.Found = home
	_, err = store.Stat(ctx, ".")
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Found += " does not exist"
		f.Remedy = fmt.Sprintf("ask an administrator to create it: hdfs dfs -mkdir -p /user/%s && hdfs dfs -chown %s "+
			"/user/%s", s.User, s.User, s.User)
	case errors.Is(err, hdfs.ErrUnreachable):
		f.Found, f.Remedy = err.Error(), "start HDFS, or correct fs.defaultFS in core-site.xml"
	case err != nil:
		f.Found, f.Remedy = err.Error(), "correct what it names, or see the NameNode's log"
	}
	return f
}

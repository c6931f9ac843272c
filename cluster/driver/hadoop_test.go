package driver

import (
	"os"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestUseHadoop: a driver looks for HDFS where its request's Hadoop is, whoever starts it. One
// in a container has the node's.
func TestUseHadoop(t *testing.T) {
	for _, tt := range []struct {
		name   string
		hadoop bool
		host   cluster.DriverHost
		want   string
	}{
		{"an engine of Hadoop's", true, nil, "/of/a/cell ana"},
		{"another engine", false, nil, "/of/the/shell "},
		{"in a container", true, struct{ cluster.DriverHost }{}, "/of/the/shell "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HADOOP_CONF_DIR", "/of/the/shell")
			t.Setenv("HADOOP_USER_NAME", "")
			d := &driver{hosting: tt.host, clusterRequest: clusterRequest{
				engine: cluster.Engine{Hadoop: tt.hadoop},
				req:    &clusterpb.ReserveRequest{Engine: map[string]string{"conf-dir": "/of/a/cell", "user": "ana"}},
			}}
			d.useHadoop()
			if got := os.Getenv("HADOOP_CONF_DIR") + " " + os.Getenv("HADOOP_USER_NAME"); got != tt.want {
				t.Errorf("the driver has %q, want %q", got, tt.want)
			}
		})
	}
}

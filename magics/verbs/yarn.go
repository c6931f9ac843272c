package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
)

// hadoopKeys are what says which Hadoop is meant and who the user is: for each variable
// of the environment the key of a request, as cluster/yarn reads it. Of several that
// name the configuration the first counts.
var hadoopKeys = [...]struct{ variable, key string }{
	{"HADOOP_CONF_DIR", "conf-dir"},
	{"YARN_CONF_DIR", "conf-dir"},
	{"HADOOP_USER_NAME", "user"},
}

// hadoop puts the notebook's Hadoop into a request, so that a driver that is started
// from elsewhere later, by attach for instance, knows it too.
func (inv *invocation) hadoop(ctx context.Context, req *clusterpb.ReserveRequest) error {
	names := make([]string, 0, len(hadoopKeys))
	for _, k := range hadoopKeys {
		names = append(names, k.variable)
	}
	found := map[string]*string{}
	if inv.py != nil { // a cell may have set them
		err := bridge.Ask(ctx, inv.py, bridge.LookupTimeout, "environ", map[string]any{"names": names}, &found)
		if err != nil && !errors.Is(err, bridge.ErrNoPython) {
			return fmt.Errorf("look up the notebook's HADOOP_CONF_DIR: %w", err)
		}
	}
	for _, k := range hadoopKeys {
		v := os.Getenv(k.variable)
		if p := found[k.variable]; p != nil {
			v = *p
		}
		if v != "" && req.Engine[k.key] == "" {
			req.Engine[k.key] = v
		}
	}
	return nil
}

// findHadoop is doctor's part for YARN and HDFS.
func (inv *invocation) findHadoop(ctx context.Context) []finding {
	if inv.session.Options.Hadoop == nil {
		return nil
	}
	req := &clusterpb.ReserveRequest{Engine: map[string]string{}}
	if err := inv.hadoop(ctx, req); err != nil {
		return []finding{{"Hadoop", err.Error(), "run the cell again when Python answers"}}
	}
	var findings []finding
	for _, f := range inv.session.Options.Hadoop(ctx, req) {
		findings = append(findings, finding{f.What, f.Found, f.Remedy})
	}
	return findings
}

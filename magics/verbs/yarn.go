package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
)

// hadoopKeys are what says which Hadoop is meant and who the user is: for each variable
// of the environment the key of a request. Of several that
// name the configuration the first counts.
var hadoopKeys = [...]struct{ variable, key string }{
	{"HADOOP_CONF_DIR", cluster.EngineConfDir},
	{"YARN_CONF_DIR", cluster.EngineConfDir},
	{"HADOOP_USER_NAME", cluster.EngineUser},
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

// diagnose is doctor's part for each engine.
func (inv *invocation) diagnose(ctx context.Context) []finding {
	var findings []finding
	for _, e := range inv.session.Options.Engines {
		if e.Diagnose == nil {
			continue
		}
		req := &clusterpb.ReserveRequest{Backend: e.Name, Python: inv.interpreter(), Engine: map[string]string{}}
		if e.Hadoop {
			if err := inv.hadoop(ctx, req); err != nil {
				findings = append(findings, finding{e.Title, err.Error(), "run the cell again when Python answers"})
				continue
			}
		}
		for _, f := range e.Diagnose(ctx, req) {
			findings = append(findings, finding{f.What, f.Found, f.Remedy})
		}
	}
	return findings
}

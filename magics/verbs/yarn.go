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

// hadoopKeys maps environment variables that select the Hadoop configuration and the user to
// keys of a request. The first variable that names a configuration is used.
var hadoopKeys = [...]struct{ variable, key string }{
	{"HADOOP_CONF_DIR", cluster.EngineConfDir},
	{"YARN_CONF_DIR", cluster.EngineConfDir},
	{"HADOOP_USER_NAME", cluster.EngineUser},
}

// hadoop adds the notebook's Hadoop settings to a request, for drivers that are started later,
// e.g. by attach.
func (inv *invocation) hadoop(ctx context.Context, req *clusterpb.ReserveRequest) error {
	names := make([]string, 0, len(hadoopKeys))
	for _, k := range hadoopKeys {
		names = append(names, k.variable)
	}
	found := map[string]*string{}
	// Cells may have set them.
	err := bridge.Ask(ctx, inv.py, bridge.LookupTimeout, "environ", map[string]any{"names": names}, &found)
	if err != nil && !errors.Is(err, bridge.ErrNoPython) {
		return fmt.Errorf("look up the notebook's HADOOP_CONF_DIR: %w", err)
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

// diagnose runs the engines' checks for doctor.
func (inv *invocation) diagnose(ctx context.Context) []finding {
	var findings []finding
	for _, e := range inv.session.Options.Engines {
		if e.Diagnose == nil {
			continue
		}
		req := &clusterpb.ReserveRequest{Backend: e.Name, Python: inv.interpreter(), Engine: map[string]string{}}
		if e.Hadoop {
			if err := inv.hadoop(ctx, req); err != nil {
				findings = append(findings,
					finding{what: e.Title, found: err.Error(), remedy: "run the cell again when Python answers"})
				continue
			}
		}
		for _, f := range e.Diagnose(ctx, req) {
			findings = append(findings, finding{what: f.What, found: f.Found, remedy: f.Remedy})
		}
	}
	return findings
}

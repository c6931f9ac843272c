package driver

import (
	"cmp"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/proxy"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// shutdownReason is the reason of a release by the verb shutdown.
const shutdownReason = "shutdown"

// record returns a function that writes the cluster's ClusterRecord once the cluster has a run
// after before, an application of its engine, or an end that the user did not request.
func (d *driver) record(before int32) func(leases []cluster.Application, places []byte, lastRun int32,
	over bool, why string,
) error {
	return func(leases []cluster.Application, places []byte, lastRun int32, over bool, why string) error {
		if why == shutdownReason {
			why = ""
		}
		if len(leases) == 0 && lastRun == before && d.old == nil && why == "" {
			return nil
		}
		p := &state.ClusterRecord{
			ID: d.authority.ID(), Earlier: d.earlier,
			Name: d.name, Backend: d.req.GetBackend(), Owner: d.req.GetOwner(), Dir: d.dir, Since: d.since, Applications: leases,
			Places: places, LastRun: lastRun, Engine: map[string]string{},
		}
		for _, k := range []string{cluster.EngineConfDir, cluster.EngineUser} { // to read a past cluster's logs
			if v := d.req.GetEngine()[k]; v != "" {
				p.Engine[k] = v
			}
		}
		if over {
			p.Until, p.Why = time.Now(), why
		}
		return p.Save()
	}
}

// recordApplication writes the ClusterRecord of a cluster whose driver the engine runs as an
// application. how is its final state, "" while it runs.
func (d *driver) recordApplication(application, how string) {
	why := how
	if how == proxy.Ended {
		why = ""
	}
	lease := cluster.Application{ID: application, State: cmp.Or(how, "running"), Since: d.since}
	if err := d.record(0)([]cluster.Application{lease}, nil, d.lastRun, how != "", why); err != nil {
		d.log.Warn("history and logs may not find this cluster after its end", "err", err)
	}
}

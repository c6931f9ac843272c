package driver

import (
	"cmp"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/driver/proxy"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// forReaders are the words on the engine that whoever reads what is left of a cluster
// needs: which Hadoop, and as whom.
var forReaders = []string{cluster.EngineConfDir, cluster.EngineUser}

// onRequest is the reason of a release that a person asked for, as the verb shutdown gives it.
const onRequest = "shutdown"

// record returns what writes the cluster's ClusterRecord once there is anything to know of it: a
// run after the one before it, something of its engine's, or an end that nobody asked for.
func (d *driver) record(before int32) func(leases []cluster.Application, places []byte, lastRun int32, over bool, why string) error {
	return func(leases []cluster.Application, places []byte, lastRun int32, over bool, why string) error {
		if why == onRequest {
			why = ""
		}
		if len(leases) == 0 && lastRun == before && d.old == nil && why == "" {
			return nil
		}
		p := &state.ClusterRecord{
			ID: d.authority.ID(), Earlier: d.earlier,
			Name: d.name, Backend: d.req.GetBackend(), Owner: d.req.GetOwner(), Dir: d.dir, Since: d.since, Applications: leases, Places: places, LastRun: lastRun,
			Engine: map[string]string{},
		}
		for _, k := range forReaders {
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

// recordApplication writes the ClusterRecord of a cluster whose driver the engine runs, as an
// application. how is how that ended; "" while it lives.
func (d *driver) recordApplication(application, how string) {
	why := how
	if how == proxy.Ended {
		why = ""
	}
	lease := cluster.Application{ID: application, State: cmp.Or(how, "running"), Since: d.since}
	if err := d.record(0)([]cluster.Application{lease}, nil, d.lastRun, how != "", why); err != nil {
		d.log.Warn("what history and logs need after the cluster's end could not be written", "err", err)
	}
}

package coordinator

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// environmentsFolder is where packed environments lie, for all clusters of this user. A
// cluster's name cannot begin so.
const environmentsFolder = ".environments"

// NewDepot keeps what executors without the driver's disk fetch, for the cluster with a
// state folder.
func NewDepot(stateDir string) *ship.Store {
	return ship.NewStore(filepath.Join(stateDir, "ship"), filepath.Join(filepath.Dir(stateDir), environmentsFolder))
}

// packEnvironment packs the environment that executors are to have, and says so to
// whoever waits for the reservation.
func (c *Coordinator) packEnvironment(ctx context.Context) error {
	given := c.cfg.Request.GetShipEnvironment()
	if given == "" {
		return nil
	}
	said, how := int64(0), "packed"
	if c.cfg.Artifacts.Source != nil {
		how = "brought to the driver"
	}
	tell := func(read int64) {
		if read-said < 32<<20 {
			return
		}
		said = read
		c.post(func() {
			for _, x := range c.lc.Executors() {
				c.handle(lifecycle.Pending{Exec: x.ID, Why: fmt.Sprintf("the environment is %s, %d MB so far", how, read>>20)})
			}
		})
	}
	if c.cfg.Artifacts.Source != nil {
		return c.files.depot.ImportEnvironment(ctx, c.cfg.Artifacts.Environment, c.cfg.Artifacts.Source, tell)
	}
	_, err := c.files.depot.Environment(ctx, given, tell)
	return err
}

// fetching shows what an executor that is not ready brings over. Loop only.
func (c *Coordinator) fetching(id cluster.ExecutorID, what string) {
	c.handle(lifecycle.AgentFetching{Exec: id, What: what})
}

// lacksEnvironment ends a reservation whose environment an executor cannot have: another
// executor could not either, and a person must choose. One whose Python runs has it,
// whatever it lacks. Loop only.
func (c *Coordinator) lacksEnvironment(p *clusterpb.Python) bool {
	if c.cfg.Request.GetShipEnvironment() == "" || p.GetVersion() != "" || c.lc.State() != lifecycle.Reserving {
		return false
	}
	c.handle(lifecycle.EnvironmentUnfit{Cause: p.GetError()})
	return true
}

// filesOf are the request's files as a start is given. Where this driver cannot read
// them, the start says which they are.
func (f *files) filesOf(ctx context.Context, req *clusterpb.StartRequest, ship []*clusterpb.GivenFile) ([]*clusterpb.Shipped, error) {
	if f.Source != nil {
		return req.GetGiven(), f.depot.Import(ctx, req.GetGiven(), f.Source)
	}
	return f.depot.Files(ctx, ship)
}

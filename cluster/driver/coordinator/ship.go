package coordinator

import (
	"context"
	"fmt"
	"path/filepath"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// environmentsFolder is the folder of packed environments, shared by this user's clusters.
// Names of clusters cannot begin with a dot.
const environmentsFolder = ".environments"

// NewArtifactStore returns the store of contents of --files and --venv for a cluster with this
// state folder.
func NewArtifactStore(stateDir string) *ship.Store {
	return ship.NewStore(filepath.Join(stateDir, "ship"), filepath.Join(filepath.Dir(stateDir), environmentsFolder))
}

// packEnvironment packs the environment of --venv for executors and reports its progress.
func (c *Coordinator) packEnvironment(ctx context.Context) error {
	given := c.cfg.Request.GetShipEnvironment()
	if given == "" {
		return nil
	}
	said, how := int64(0), "packed"
	if c.cfg.Artifacts.Source != nil {
		how = "sent to the driver"
	}
	tell := func(read int64) {
		if read-said < 32<<20 {
			return
		}
		said = read
		c.post(func() {
			for _, x := range c.lc.Executors() {
				c.handle(cluster.Pending{Executor: x.ID, Why: fmt.Sprintf("the environment is %s, %d MB so far", how, read>>20)})
			}
		})
	}
	if c.cfg.Artifacts.Source != nil {
		return c.files.shipped.ImportEnvironment(ctx, c.cfg.Artifacts.Environment, c.cfg.Artifacts.Source, tell)
	}
	_, err := c.files.shipped.Environment(ctx, given, tell)
	return err
}

// lacksEnvironment ends a reservation if an executor cannot use the environment: a replacement
// could not either. It returns false if the Python started. Loop only.
func (c *Coordinator) lacksEnvironment(p *clusterpb.Python) bool {
	if c.cfg.Request.GetShipEnvironment() == "" || p.GetVersion() != "" || c.lc.State() != lifecycle.Reserving {
		return false
	}
	c.handle(lifecycle.EnvironmentUnfit{Cause: p.GetError()})
	return true
}

// importFiles stores the current contents of --files; if this host does not have them, those that
// the start names.
func (c *Coordinator) importFiles(ctx context.Context, p *runPlan) (err error) {
	if f := &c.files; f.Source != nil {
		p.given = p.req.GetGiven()
		err = f.shipped.Import(ctx, p.given, f.Source)
	} else {
		p.given, err = f.shipped.Files(ctx, c.cfg.Request.GetShip())
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return nil
}

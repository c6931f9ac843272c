package coordinator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// environmentsFolder is where packed environments lie, for all clusters of this user. A
// cluster's name cannot begin so.
const environmentsFolder = ".environments"

// filesOf are the request's files as a start is given. Where this driver cannot read
// them, the start says which they are.
func (c *Coordinator) filesOf(ctx context.Context, req *clusterpb.StartRequest) ([]*clusterpb.Shipped, error) {
	if c.cfg.Given != nil {
		return req.GetGiven(), c.depot.Take(ctx, req.GetGiven(), c.cfg.Given)
	}
	return c.depot.Files(ctx, c.cfg.Request.GetShip())
}

// NewDepot keeps what executors without the driver's disk fetch, for the cluster with a
// state folder.
func NewDepot(stateDir string) *ship.Depot {
	return ship.NewDepot(filepath.Join(stateDir, "ship"), filepath.Join(filepath.Dir(stateDir), environmentsFolder))
}

// packEnvironment packs the environment that executors are to have, and says so to
// whoever waits for the reservation.
func (c *Coordinator) packEnvironment(ctx context.Context) error {
	given := c.cfg.Request.GetShipEnvironment()
	if given == "" {
		return nil
	}
	said, how := int64(0), "packed"
	if c.cfg.Given != nil {
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
	if c.cfg.Given != nil {
		return c.depot.TakeEnvironment(ctx, c.cfg.Environment, c.cfg.Given, tell)
	}
	_, err := c.depot.Environment(ctx, given, tell)
	return err
}

// fetchShipped serves Fetch from the depot.
func (c *Coordinator) fetchShipped(req *clusterpb.FetchRequest, stream grpc.ServerStreamingServer[clusterpb.Chunk]) error {
	f, err := c.depot.Open(req.GetSha256())
	if errors.Is(err, fs.ErrNotExist) {
		return status.Errorf(codes.NotFound, "no blob %s: the run it belonged to is over", req.GetSha256())
	}
	if err != nil {
		return status.Errorf(codes.Internal, "read blob %.12s: %v", req.GetSha256(), err)
	}
	defer f.Close()
	buffer := make([]byte, fetchChunk)
	for {
		n, err := f.Read(buffer)
		if n > 0 {
			if err := stream.Send(&clusterpb.Chunk{Data: buffer[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return status.Errorf(codes.Internal, "read blob %.12s: %v", req.GetSha256(), err)
		}
	}
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

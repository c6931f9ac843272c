package magics

import (
	"context"
	"errors"
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/session"
)

// LocalDrivers finds and starts drivers of this user on this host: the Connector of
// every session outside tests.
type LocalDrivers struct {
	Program string // the tfcluster binary
}

// Launch starts a driver for the request and connects to it.
func (d LocalDrivers) Launch(ctx context.Context,
	req *clusterpb.ReserveRequest,
) (string, clusterpb.ControlClient, error) {
	c, err := client.Launch(ctx, d.Program, req)
	if err != nil {
		return "", nil, err
	}
	return c.Name, c, nil
}

// Dial connects to a live driver. Where the engine runs it, and only the process is dead
// that stood before it here, another takes that one's place.
func (d LocalDrivers) Dial(ctx context.Context, name string) (clusterpb.ControlClient, error) {
	c, err := client.Dial(ctx, name)
	if errors.Is(err, client.ErrNoDriver) && client.IsHosted(name) {
		c, err = client.Recover(ctx, d.Program, name)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Recover starts a driver for a cluster whose driver died, or dials the live one.
func (d LocalDrivers) Recover(ctx context.Context, name string) (clusterpb.ControlClient, error) {
	c, err := client.Recover(ctx, d.Program, name)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Kill ends the process of a driver that does not answer.
func (d LocalDrivers) Kill(ctx context.Context, name string) error { return client.Kill(ctx, name) }

// List names the clusters.
func (d LocalDrivers) List(context.Context) ([]session.ClusterInfo, error) {
	found, err := client.List()
	if err != nil {
		return nil, err
	}
	infos := make([]session.ClusterInfo, 0, len(found))
	for _, f := range found {
		i := session.ClusterInfo{
			Name: f.Name, Backend: f.Backend, Owner: f.Owner, Dir: f.Dir, Since: f.Since,
			PID: f.Driver.PID, Live: f.Driver.Alive(), Stopped: f.Driver.Stopped(), Hosted: f.Hosted(),
		}
		switch {
		case !i.Live && i.Hosted:
			i.Note = fmt.Sprintf("its engine runs its driver; status -c %s asks it", f.Name)
		case !i.Live:
			i.Note = fmt.Sprintf("its driver died; attach -c %s, reset or shutdown", f.Name)
		}
		infos = append(infos, i)
	}
	return infos, nil
}

package yarn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/yarn/gang"
	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/site"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Backend reserves containers of the YARN cluster that HADOOP_CONF_DIR describes.
type Backend struct {
	// Attempt is set if this process is a managed ApplicationMaster. If it is nil, this process
	// submits applications and is their unmanaged ApplicationMaster.
	Attempt *Attempt
}

var (
	_ cluster.Backend            = (*Backend)(nil)
	_ cluster.RemoteEngine       = (*Backend)(nil)
	_ cluster.DriverLauncher     = (*Backend)(nil)
	_ cluster.AgentLogs          = (*allocation)(nil)
	_ cluster.ApplicationHistory = (*allocation)(nil)
	_ cluster.NodeExcluder       = (*allocation)(nil)
	_ cluster.HostAvoider        = (*allocation)(nil)
	_ cluster.HostLister         = (*allocation)(nil)
	_ cluster.AddressPublisher   = (*allocation)(nil)
)

// Timeouts of calls. An outage of the ResourceManager, as when it restarts, is tolerated for outageLimit;
// an unmanaged master that is away for longer than YARN's expiry has lost its application.
const (
	callLimit     = 5 * time.Second // one heartbeat; the next one repeats it
	outageLimit   = 5 * time.Minute
	nodeLimit     = 30 * time.Second       // to reach a NodeManager; after that another node is tried
	startLimit    = 2 * time.Minute        // to start an agent's container
	retryInterval = 200 * time.Millisecond // between two calls while connections are refused
)

// FailureDetectionDelay returns the sum of a NodeManager's heartbeat interval, one second by default,
// and that of this master, rounded up.
func (b *Backend) FailureDetectionDelay() time.Duration { return 4 * time.Second }

// Allocate validates the request and submits an application. Its time in the queue and the containers
// of its executors are reported as events.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	if b.Attempt != nil {
		return b.Attempt.allocate(ctx, req, nil)
	}
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	return allocate(ctx, s, req, saved{})
}

// allocate submits an application and starts its allocation. The executors' attempts continue those in old.
func allocate(ctx context.Context, s site.Site, req cluster.Request, old saved) (cluster.Allocation, error) {
	app, program, err := submit(ctx, s, req, nil)
	if err != nil {
		return nil, err
	}
	old.Program, old.Backoff = program, gang.Backoff{} // a new application has no containers yet
	a := newAllocation(s, req, app, old)
	a.shippedAt = time.Now()
	for _, e := range req.Executors {
		a.requestContainer(e.ID)
		if _, was := old.Executors[e.ID]; was {
			a.emit(cluster.Reallocated{Executor: e.ID, Attempt: a.executors[e.ID].attempt})
		}
	}
	a.start()
	return a, nil
}

// Recover registers again as the master of a dead driver's application, adopts its running containers
// and requests new ones for the rest. If the application has ended, Recover submits another one.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	a, err := b.recover(ctx, req, raw)
	if errors.Is(err, protocol.ErrUnreachable) && ctx.Err() == nil {
		err = fmt.Errorf("%w; %w", err, cluster.ErrEngineAway)
	}
	return a, err
}

func (b *Backend) recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	if b.Attempt != nil {
		return b.Attempt.allocate(ctx, req, raw)
	}
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	var old saved
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("this version of tfcluster cannot read what the last driver saved of its containers: %w", err)
	}
	if old.Application == "" {
		return allocate(ctx, s, req, old)
	}
	app := application{nodes: protocol.NewNodes(s.Conf, nodeLimit)}
	if app.id, err = protocol.ParseApplication(old.Application); err != nil {
		return nil, err
	}
	if len(old.State.Token.Identifier) == 0 { // it has not been activated, so it has no containers
		if err := app.finish(ctx, s, statusReleased); err != nil {
			return nil, err
		}
		return allocate(ctx, s, req, old)
	}
	if app.master, err = protocol.NewMaster(s.Conf, old.State, callLimit); err != nil {
		return nil, err
	}
	r, err := register(ctx, app.master, protocol.Contact{})
	if errors.Is(err, protocol.ErrGone) || errors.Is(err, protocol.ErrRegistered) {
		if err := app.finish(ctx, s, statusReleased); err != nil { // with an expired token it still holds containers
			return nil, err
		}
		return allocate(ctx, s, req, old)
	} else if err != nil {
		return nil, errors.Join(err, app.close())
	}
	a := newAllocation(s, req, app, old)
	a.adopt(r)
	a.start()
	return a, nil
}

// register registers the master, and retries while the ResourceManager is unreachable.
func register(ctx context.Context, m *protocol.Master,
	at protocol.Contact,
) (*yarnpb.RegisterApplicationMasterResponse, error) {
	for began := time.Now(); ; {
		r, err := m.Register(ctx, at)
		if !errors.Is(err, protocol.ErrUnreachable) || time.Since(began) > outageLimit || ctx.Err() != nil {
			return r, err
		}
		select {
		case <-time.After(retryInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

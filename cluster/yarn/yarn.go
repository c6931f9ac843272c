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

// Backend reserves containers of the YARN that HADOOP_CONF_DIR tells of.
type Backend struct {
	// Attempt is this process's where it is a managed ApplicationMaster; nil: it is the
	// unmanaged one of an application that it submits.
	Attempt *Attempt
}

var (
	_ cluster.Backend            = (*Backend)(nil)
	_ cluster.RemoteEngine       = (*Backend)(nil)
	_ cluster.DriverLauncher     = (*Backend)(nil)
	_ cluster.AgentLogs          = (*allocation)(nil)
	_ cluster.ApplicationHistory = (*allocation)(nil)
	_ cluster.NodeExcluder       = (*allocation)(nil)
	_ cluster.AddressPublisher   = (*allocation)(nil)
)

// Times within which a peer is to be reached. A ResourceManager that is restarted is away for a while; a master
// that is away for longer than YARN's expiry is gone.
const (
	callLimit   = 5 * time.Second // one heartbeat, which comes again
	bridgeLimit = 5 * time.Minute
	nodeLimit   = 30 * time.Second       // to reach a NodeManager: another node may do as well
	startLimit  = 2 * time.Minute        // to start an agent's container
	between     = 200 * time.Millisecond // two tries of what is refused at once
)

// FailureDetectionDelay is a NodeManager's heartbeat, a second unless configured, and ours.
func (b *Backend) FailureDetectionDelay() time.Duration { return 4 * time.Second }

// Allocate checks what is asked for and submits an application. That its queue lets it
// wait, and each executor's container, is told by events.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	if b.Attempt != nil {
		return b.Attempt.take(ctx, req, nil)
	}
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	return allocate(ctx, s, req, saved{})
}

// allocate begins an application. It follows an older one, with its executors' attempts.
func allocate(ctx context.Context, s site.Site, req cluster.Request, old saved) (cluster.Allocation, error) {
	app, program, err := submit(ctx, s, req, nil)
	if err != nil {
		return nil, err
	}
	old.Program, old.Turns = program, gang.Backoff{} // nothing that comes was ever part of a cluster
	a := newAllocation(s, req, app, old)
	a.shipped = time.Now()
	for _, e := range req.Executors {
		a.want(e.ID)
		if _, was := old.Executors[e.ID]; was {
			a.tell(cluster.Reallocated{Executor: e.ID, Attempt: a.executors[e.ID].attempt})
		}
	}
	a.begin()
	return a, nil
}

// Recover registers again as the master of a dead driver's application and takes back
// what lives of its containers; the others are asked for anew. Where that application
// has ended it begins another.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	a, err := b.recover(ctx, req, raw)
	if errors.Is(err, protocol.ErrUnreachable) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", err, cluster.ErrEngineAway)
	}
	return a, err
}

func (b *Backend) recover(ctx context.Context, req cluster.Request, raw []byte) (cluster.Allocation, error) {
	if b.Attempt != nil {
		return b.Attempt.take(ctx, req, raw)
	}
	s, err := site.Find(req.Reserve)
	if err != nil {
		return nil, err
	}
	var old saved
	if err := json.Unmarshal(raw, &old); err != nil {
		return nil, fmt.Errorf("read what the last driver saved of its containers: %w", err)
	}
	if old.Application == "" {
		return allocate(ctx, s, req, old)
	}
	app := application{nodes: protocol.NewNodes(s.Conf, nodeLimit)}
	if app.id, err = protocol.ParseApplication(old.Application); err != nil {
		return nil, err
	}
	if len(old.State.Token.Identifier) == 0 { // it waits to begin
		if err := app.end(ctx, s, released); err != nil {
			return nil, err
		}
		return allocate(ctx, s, req, old)
	}
	if app.master, err = protocol.NewMaster(s.Conf, old.State, callLimit); err != nil {
		return nil, err
	}
	r, err := register(ctx, app.master, protocol.Contact{})
	if errors.Is(err, protocol.ErrGone) || errors.Is(err, protocol.ErrRegistered) {
		if err := app.end(ctx, s, released); err != nil { // where its token was an old one, it holds containers yet
			return nil, err
		}
		return allocate(ctx, s, req, old)
	} else if err != nil {
		return nil, errors.Join(err, app.close())
	}
	a := newAllocation(s, req, app, old)
	a.adopt(r)
	a.begin()
	return a, nil
}

// register bears with a ResourceManager that is away for a while.
func register(ctx context.Context, m *protocol.Master, at protocol.Contact) (*yarnpb.RegisterApplicationMasterResponse, error) {
	for began := time.Now(); ; {
		r, err := m.Register(ctx, at)
		if !errors.Is(err, protocol.ErrUnreachable) || time.Since(began) > bridgeLimit || ctx.Err() != nil {
			return r, err
		}
		select {
		case <-time.After(between):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

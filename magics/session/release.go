package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// ShutdownTimeout bounds a release: the grace time of the tasks and the time of the engine.
const ShutdownTimeout = time.Minute

// PickOrRecover returns the cluster that a command means. It starts a driver if the cluster's driver died; with end,
// it first ends a driver that does not answer.
func (s *State) PickOrRecover(ctx context.Context, c *command.Command, end bool) (*Handle, error) {
	m, err := s.Pick(ctx, c)
	if err == nil {
		_, serr := m.Status(ctx)
		if serr == nil {
			return m, nil
		}
		err = m.Explain(serr)
	}
	name := cmp.Or(c.Text("cluster"), s.LastName())
	if m != nil {
		name = m.Name
	}
	if name == "" {
		if name = s.onlyOne(ctx); name == "" {
			return nil, err
		}
	}
	rctx, cancel := context.WithTimeout(ctx, RecoverTimeout)
	defer cancel()
	switch fate := FateOf(err); {
	case fate == Over, fate == Unknown, fate == Silent && !end:
		return nil, err
	case fate == Silent:
		if err := s.Options.Connector.Kill(rctx, name); err != nil {
			return nil, err
		}
	}
	client, rerr := s.Options.Connector.Recover(rctx, name)
	if rerr != nil {
		return nil, s.Explain(name, rerr)
	}
	m = s.adopt(name, client, s.owns(m))
	m.Recovered = true
	return m, nil
}

// owns reports whether the cluster is released with the session.
func (s *State) owns(m *Handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m != nil && m.owned
}

// onlyOne returns the only existing cluster, live or dead; "" if there are none or several.
func (s *State) onlyOne(ctx context.Context) string {
	infos, err := s.Options.Connector.List(ctx)
	if err != nil || len(infos) != 1 {
		return ""
	}
	return infos[0].Name
}

// Release releases a cluster and waits for its end. out may be nil.
func (s *State) Release(ctx context.Context, out render.Output, m *Handle, req *clusterpb.ShutdownRequest) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, ShutdownTimeout)
	defer cancel()
	stream, err := m.Client.Shutdown(ctx, req)
	if err != nil {
		return m.Explain(err)
	}
	for {
		u, err := stream.Recv()
		if errors.Is(err, io.EOF) || u.GetDone() {
			break
		}
		if err != nil {
			return m.Explain(err)
		}
		if f := u.GetFailure(); f != nil {
			return &result.RunFailed{Failure: f}
		}
		if u.GetText() != "" && out != nil {
			out.Stdout(u.GetText() + "\n")
		}
	}
	s.Forget(m.Name)
	if out != nil {
		out.Stdout(fmt.Sprintf("cluster %s released in %.1f s\n", m.Name, time.Since(begun).Seconds()))
	}
	return nil
}

// Shutdown handles a kernel's shutdown request. Without restart it releases the session's own clusters, except one
// with an active detached run. It does not wait long, because a front end waits for the kernel; drivers finish by
// themselves.
func (s *State) Shutdown(ctx context.Context, restart bool) {
	if !restart {
		s.mu.Lock()
		var own []*Handle
		for _, m := range s.clusters {
			if m.owned {
				own = append(own, m)
			}
		}
		s.mu.Unlock()
		var all sync.WaitGroup
		for _, m := range own {
			all.Go(func() {
				// After an error the cluster's idle timer releases it.
				_ = s.Release(ctx, nil, m,
					&clusterpb.ShutdownRequest{Force: true, UnlessDetached: true, Reason: "the kernel was shut down"})
			})
		}
		all.Wait()
	}
	s.Close()
}

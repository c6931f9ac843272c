package magics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shutdownTimeout bounds a release: tasks' grace and the engine's own time.
const shutdownTimeout = time.Minute

// pickOrRecover finds the cluster a command means, starting a driver where it died.
func (s *State) pickOrRecover(ctx context.Context, c *Command) (*member, error) {
	m, err := s.pick(ctx, c)
	if err == nil {
		if _, serr := m.status(ctx); serr == nil {
			return m, nil
		}
	}
	name := c.Text("cluster")
	switch {
	case m != nil:
		name = m.name
	case name == "":
		if name = s.lastName(); name == "" {
			if name = s.onlyOne(ctx); name == "" {
				return nil, err
			}
		}
	}
	rctx, cancel := context.WithTimeout(ctx, recoverTimeout)
	defer cancel()
	client, rerr := s.opt.Connector.Recover(rctx, name)
	if rerr != nil {
		return nil, s.unreachable(name, rerr)
	}
	return s.adopt(name, client, s.owns(m)), nil
}

// owns is whether the session's end is the cluster's.
func (s *State) owns(m *member) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m != nil && m.owned
}

// onlyOne is the only cluster there is, live or dead.
func (s *State) onlyOne(ctx context.Context) string {
	infos, err := s.opt.Connector.List(ctx)
	if err != nil || len(infos) != 1 {
		return ""
	}
	return infos[0].Name
}

// release ends a cluster and waits until it is gone.
func (s *State) release(ctx context.Context, out Output, m *member, req *clusterpb.ShutdownRequest) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, shutdownTimeout)
	defer cancel()
	stream, err := m.client.Shutdown(ctx, req)
	if err != nil {
		return answered(err)
	}
	for {
		u, err := stream.Recv()
		if errors.Is(err, io.EOF) || u.GetDone() {
			break
		}
		if err != nil {
			return answered(err)
		}
		if f := u.GetFailure(); f != nil {
			return &RunFailed{Failure: f}
		}
		if u.GetText() != "" && out != nil {
			out.Stdout(u.GetText() + "\n")
		}
	}
	s.forget(m.name)
	if out != nil {
		out.Stdout(fmt.Sprintf("cluster %s released in %.1f s\n", m.name, time.Since(begun).Seconds()))
	}
	return nil
}

// Shutdown answers a kernel's shutdown request: without restart the session's own
// clusters are released, unless a detached run is on. It is quick enough for a front
// end that waits for the kernel; the drivers finish on their own.
func (s *State) Shutdown(ctx context.Context, restart bool) {
	if !restart {
		s.mu.Lock()
		var own []*member
		for _, m := range s.clusters {
			if m.owned {
				own = append(own, m)
			}
		}
		s.mu.Unlock()
		var all sync.WaitGroup
		for _, m := range own {
			all.Go(func() {
				// An error leaves the cluster to its idle clock, and there is nobody to tell.
				_ = s.release(ctx, nil, m, &clusterpb.ShutdownRequest{Force: true, UnlessDetached: true, Reason: "the kernel was shut down"})
			})
		}
		all.Wait()
	}
	s.Close()
}

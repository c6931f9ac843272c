package session

import (
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

// ShutdownTimeout bounds a release: tasks' grace and the engine's own time.
const ShutdownTimeout = time.Minute

// PickOrRecover finds the cluster a command means, starting a driver where it died. With end a
// driver that does not answer is ended first.
func (s *State) PickOrRecover(ctx context.Context, c *command.Command, end bool) (*Handle, error) {
	m, err := s.Pick(ctx, c)
	if err == nil {
		_, serr := m.Status(ctx)
		if serr == nil {
			return m, nil
		}
		err = m.Explain(serr)
	}
	name := c.Text("cluster")
	switch {
	case m != nil:
		name = m.Name
	case name == "":
		if name = s.LastName(); name == "" {
			if name = s.onlyOne(ctx); name == "" {
				return nil, err
			}
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

// owns is whether the session's end is the cluster's.
func (s *State) owns(m *Handle) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return m != nil && m.owned
}

// onlyOne is the only cluster there is, live or dead.
func (s *State) onlyOne(ctx context.Context) string {
	infos, err := s.Options.Connector.List(ctx)
	if err != nil || len(infos) != 1 {
		return ""
	}
	return infos[0].Name
}

// Release ends a cluster and waits until it is gone.
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

// Shutdown answers a kernel's shutdown request: without restart the session's own
// clusters are released, unless a detached run is on. It is quick enough for a front
// end that waits for the kernel; the drivers finish on their own.
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
				// An error leaves the cluster to its idle clock, and there is nobody to tell.
				_ = s.Release(ctx, nil, m, &clusterpb.ShutdownRequest{Force: true, UnlessDetached: true, Reason: "the kernel was shut down"})
			})
		}
		all.Wait()
	}
	s.Close()
}

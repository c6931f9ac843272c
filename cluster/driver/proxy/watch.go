package proxy

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Pauses of a watcher's stream.
const (
	ownPause   = 200 * time.Millisecond // between two statuses while no driver answers
	watchPause = time.Second            // before the next attempt to reach the driver
)

// watch forwards the statuses of the driver, and of each later one. While none answers it sends its own status.
func (p *Proxy) watch(method string, asked []byte, s grpc.ServerStream) error {
	ctx := s.Context()
	var own *clusterpb.ClusterStatus // sent last; nil: the driver's was
	for {
		now := p.look()
		if now.over == nil && p.reconnects(ctx) {
			own = nil
			if ended, err := p.forwardStatuses(ctx, method, asked, s); ended || err != nil {
				return err
			}
			p.recheckDriver()
			pause(ctx, nil, watchPause)
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if st := p.ownStatus(); !proto.Equal(own, st) {
			if own = st; s.SendMsg(st) != nil {
				return ctx.Err()
			}
		}
		if now.over != nil {
			return nil
		}
		pause(ctx, nil, ownPause)
		pause(ctx, now.changed, watchPause)
	}
}

// forwardStatuses forwards the statuses of the driver that answers now. ended says that it has ended the stream,
// because the cluster is over; the error is the client's.
func (p *Proxy) forwardStatuses(ctx context.Context, method string, asked []byte,
	s grpc.ServerStream,
) (ended bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	to, err := p.open(ctx, method)
	if err == nil {
		err = to.SendMsg(&asked)
	}
	if err == nil {
		err = to.CloseSend()
	}
	for err == nil {
		var b []byte
		if err = to.RecvMsg(&b); err != nil {
			break
		}
		if err := s.SendMsg(&b); err != nil {
			return false, err
		}
	}
	return errors.Is(err, io.EOF), s.Context().Err()
}

// pause waits for a change, which may be nil, d or ctx.
func pause(ctx context.Context, changed <-chan struct{}, d time.Duration) {
	select {
	case <-changed:
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// ownStatus returns the status of a cluster whose driver does not answer.
func (p *Proxy) ownStatus() *clusterpb.ClusterStatus {
	host, _ := os.Hostname() // "" is acceptable
	st := &clusterpb.ClusterStatus{
		Name: p.cfg.Name, Backend: p.cfg.Request.GetBackend(), State: "reserving", Executors: p.executors(), Dir: p.cfg.Dir,
		SinceUnix: p.cfg.Since.Unix(), IdleMillis: p.cfg.Request.GetIdleMillis(), DriverPid: int32(os.Getpid()),
		Owner: p.cfg.Request.GetOwner(), Roles: p.cfg.Request.GetRoles(), Host: host, Version: p.cfg.Version,
		Protocol: clusterpb.Protocol, Request: p.cfg.Request, BeginsItself: p.cfg.Begin != nil,
	}
	now := p.look()
	if now.remote != nil {
		st.Allocation = now.remote.ID()
	}
	if now.over != nil {
		st.State = "failed"
	}
	return st
}

package proxy

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shutdown has the driver release the cluster and waits until the engine has ended it. If no
// driver answers, the cluster is ended by force.
func (p *Proxy) shutdown(method string, asked []byte, s grpc.ServerStream) error {
	for again := true; again; {
		conn := p.look().conn
		if conn == nil {
			p.requestShutdown()
			p.end()
		} else if lingers, err := p.releaseByDriver(s.Context(), method, asked, s); err != nil || lingers {
			return err
		}
		p.requestShutdown()
		p.recheckDriver()
		var err error
		if again, err = p.awaitEnd(s.Context(), conn); err != nil {
			return err
		}
	}
	return s.SendMsg(&clusterpb.ShutdownUpdate{Done: true})
}

// awaitEnd waits until the cluster is over. It returns true if instead another driver answers than the one of conn,
// which was asked to release the cluster: the engine has started it anew.
func (p *Proxy) awaitEnd(ctx context.Context, conn *grpc.ClientConn) (again bool, err error) {
	late := time.After(endLimit)
	for {
		now := p.look()
		if now.conn != nil && conn != nil && now.conn != conn {
			return true, nil
		}
		select {
		case <-p.done:
			return false, nil
		case <-now.changed:
		case <-ctx.Done():
			return false, ctx.Err()
		case <-late:
			return false, status.Error(codes.DeadlineExceeded,
				"the cluster is still being released: repeat shutdown to wait for it")
		}
	}
}

func (p *Proxy) requestShutdown() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shutdownAsked = true
}

// releaseLimit bounds the time until the driver has received Shutdown.
const releaseLimit = 10 * time.Second

// releaseByDriver has the driver release the cluster and forwards its messages. lingers says
// that the driver reported that releasing takes longer. If the driver does not receive the call
// within releaseLimit, the cluster is ended by force.
func (p *Proxy) releaseByDriver(ctx context.Context, method string, asked []byte,
	s grpc.ServerStream,
) (lingers bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(releaseLimit, cancel)
	to, err := p.open(ctx, method)
	if !late.Stop() {
		p.end()
		return false, nil
	}
	if err == nil {
		err = to.SendMsg(&asked)
	}
	if err != nil && !errors.Is(err, io.EOF) { // after that, RecvMsg returns the reason
		return false, err
	}
	_ = to.CloseSend() // it never fails
	for {
		u := &clusterpb.ShutdownUpdate{}
		err := to.RecvMsg(u)
		if errors.Is(err, io.EOF) || ctx.Err() == nil && broke(err) {
			return false, nil // it has ended
		}
		if err != nil {
			return false, err
		}
		if u.GetText() == "" {
			continue
		}
		if err := s.SendMsg(u); err != nil || u.GetDone() {
			p.requestShutdown()
			return true, err
		}
	}
}

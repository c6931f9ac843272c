package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"path"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

const maxInt = math.MaxInt32

// raw is a codec that passes *[]byte through, for messages that are only forwarded.
type raw struct{}

// Name implements encoding.Codec.
func (raw) Name() string { return "proto" }

// Marshal implements encoding.Codec for *[]byte and proto.Message.
func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return proto.Marshal(v.(proto.Message))
}

// Unmarshal implements encoding.Codec for *[]byte and proto.Message.
func (raw) Unmarshal(b []byte, v any) error {
	if to, ok := v.(*[]byte); ok {
		*to = append([]byte(nil), b...) // gRPC reuses the buffer
		return nil
	}
	return proto.Unmarshal(b, v.(proto.Message))
}

// handle serves all calls of clients.
func (p *Proxy) handle(_ any, s grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(s)
	if !ok {
		return status.Error(codes.Internal, errtext.Fault("a call without a method").Error())
	}
	serve := map[string]func(method string, asked []byte, s grpc.ServerStream) error{
		"Reserve": p.reserve, "Watch": p.watch, "Hold": p.hold, "Shutdown": p.shutdown, "Start": p.start,
	}[path.Base(method)]
	if serve != nil {
		var asked []byte
		if err := s.RecvMsg(&asked); err != nil {
			return err
		}
		return serve(method, asked, s)
	}
	switch path.Base(method) {
	case "Status":
		return p.status(method, s)
	case "Samples":
		if !p.reconnects(s.Context()) { // the driver has them in memory
			return status.Error(codes.Unavailable,
				"there are no samples: the cluster's driver does not answer: "+p.look().waiting)
		}
	case "TensorBoard":
		return p.tensorBoard(s)
	case "LinesAddress":
		return p.linesAddress(s)
	}
	return p.forward(method, s)
}

// statusLimit is how long a driver may take for its status before this process says that it does not answer: less than
// the five seconds that clients wait.
const statusLimit = 4 * time.Second

// status forwards the driver's status. While there is no driver, it is this process's.
func (p *Proxy) status(method string, s grpc.ServerStream) error {
	var asked, answer []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.Context(), statusLimit)
	defer cancel()
	if !p.reconnects(ctx) {
		return s.SendMsg(p.ownStatus())
	}
	to, err := p.open(ctx, method)
	if err == nil {
		err = to.SendMsg(&asked)
	}
	if err == nil {
		err = errors.Join(to.CloseSend(), to.RecvMsg(&answer))
	}
	switch {
	case err == nil:
		return s.SendMsg(&answer)
	case ctx.Err() != nil && s.Context().Err() == nil:
		return status.Error(codes.Unavailable, p.look().silence())
	}
	return p.explain(ctx, err)
}

// waitForDriver returns the connection to the driver, and waits while there is none.
func (p *Proxy) waitForDriver(ctx context.Context) (*grpc.ClientConn, error) {
	for {
		now := p.look()
		if now.over != nil {
			return nil, status.Error(codes.Unavailable, now.over.Error())
		}
		if now.conn != nil {
			return now.conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, status.Error(codes.Unavailable, "the cluster's driver does not answer yet: "+p.look().waiting+
				"; repeat the command")
		case <-now.changed:
		}
	}
}

// reconnectWait is how long a lost driver may take to answer again before this process answers
// Status itself.
const reconnectWait = 3 * time.Second

// reconnects returns whether the driver is connected, or is again within reconnectWait.
func (p *Proxy) reconnects(ctx context.Context) bool {
	if p.look().conn != nil || !p.published() {
		return p.look().conn != nil
	}
	ctx, cancel := context.WithTimeout(ctx, reconnectWait)
	defer cancel()
	_, err := p.waitForDriver(ctx)
	return err == nil
}

// forward forwards a call, first with the messages received already, and returns its answers.
func (p *Proxy) forward(method string, s grpc.ServerStream, received ...[]byte) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	to, err := p.open(ctx, method)
	if err != nil {
		return err
	}
	go func() { // ends with the client's stream, which ends when this method returns
		for _, b := range received {
			if to.SendMsg(&b) != nil {
				return // RecvMsg returns the reason
			}
		}
		for {
			var b []byte
			if err := s.RecvMsg(&b); err != nil {
				if errors.Is(err, io.EOF) {
					_ = to.CloseSend() // it never fails
				} else {
					cancel()
				}
				return
			}
			if to.SendMsg(&b) != nil {
				return
			}
		}
	}()
	for {
		var b []byte
		err := to.RecvMsg(&b)
		if errors.Is(err, io.EOF) {
			s.SetTrailer(to.Trailer())
			return nil
		}
		if err != nil {
			return p.explain(ctx, err)
		}
		if err := s.SendMsg(&b); err != nil {
			return err
		}
	}
}

// broke reports whether a call has ended with its connection: the driver's end closed it (Unavailable), or disconnect
// did (Canceled, although nobody canceled the call).
func broke(err error) bool {
	return status.Code(err) == codes.Unavailable || status.Code(err) == codes.Canceled
}

// explain returns a clearer error for a call that broke off because the driver or the cluster
// has ended.
func (p *Proxy) explain(ctx context.Context, err error) error {
	if !broke(err) || ctx.Err() != nil {
		return err
	}
	err = status.Error(codes.Unavailable, status.Convert(err).Message())
	p.recheckDriver()
	ctx, cancel := context.WithTimeout(ctx, reconnectWait)
	defer cancel()
	for {
		now := p.look()
		switch {
		case now.over != nil:
			return status.Error(codes.Unavailable, now.over.Error())
		case now.conn == nil:
			return status.Error(codes.Aborted, "the cluster's driver ended, and its engine starts it again: repeat the command")
		}
		select {
		case <-now.changed:
		case <-ctx.Done():
			return err
		}
	}
}

// open opens a call to the driver, and waits while none answers.
func (p *Proxy) open(ctx context.Context, method string) (grpc.ClientStream, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	out := metadata.NewOutgoingContext(ctx, md.Copy())
	for {
		conn, err := p.waitForDriver(ctx)
		if err != nil {
			return nil, err
		}
		to, err := conn.NewStream(out, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
			grpc.ForceCodec(raw{}), grpc.WaitForReady(true))
		if err == nil || conn.GetState() != connectivity.Shutdown {
			return to, err
		} // else the connection was replaced meanwhile
	}
}

// recheckDriver has follow look for the driver's address now.
func (p *Proxy) recheckDriver() {
	select {
	case p.recheck <- struct{}{}:
	default:
	}
}

// reserve reports what the reservation waits for until the driver answers, then forwards.
func (p *Proxy) reserve(method string, asked []byte, s grpc.ServerStream) error {
	for {
		now := p.look()
		if now.conn != nil {
			return p.forward(method, s, asked)
		}
		u := &clusterpb.ReserveUpdate{
			Executors: p.executors(), Waiting: now.waiting, Seconds: time.Since(p.began).Seconds(),
		}
		if now.remote != nil {
			u.Allocation = now.remote.ID()
		}
		if now.over != nil {
			u.Failure = failure(now.over)
		}
		if err := s.SendMsg(u); err != nil || now.over != nil {
			return err
		}
		select {
		case <-now.changed:
		case <-time.After(time.Second): // updates Seconds
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// failure returns the Failure of a reservation that ended with why.
func failure(why error) *clusterpb.Failure {
	f := coordinator.ReserveFailure(why)
	if errors.Is(why, errLate) {
		f.Kind, f.ExitCode, f.Remedy = "timeout", 75,
			"correct what the reason names, choose another --queue, or give --reserve-timeout more time"
	}
	return f
}

func (p *Proxy) executors() []*clusterpb.ExecutorStatus {
	why := p.look().waiting
	var all []*clusterpb.ExecutorStatus
	for _, e := range cluster.ExecutorRequests(p.cfg.Request.GetRoles()) {
		all = append(all,
			&clusterpb.ExecutorStatus{Id: string(e.ID), Task: e.Task.String(), State: "pending", Cause: why})
	}
	return all
}

// hold registers the client with the driver, and with each later one, until the stream ends.
func (p *Proxy) hold(method string, first []byte, s grpc.ServerStream) error {
	if err := s.SendMsg(&clusterpb.HoldUpdate{}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	go func() { // ends with the stream
		defer cancel()
		for {
			var b []byte
			if s.RecvMsg(&b) != nil {
				return
			}
		}
	}()
	for {
		to, err := p.open(ctx, method)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = to.SendMsg(&first)
		}
		for err == nil {
			var b []byte
			err = to.RecvMsg(&b)
		}
		p.recheckDriver()
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
			return nil
		case <-time.After(time.Second): // then with the next driver
		}
	}
}

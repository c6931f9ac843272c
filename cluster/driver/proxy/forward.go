package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
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
)

const maxInt = math.MaxInt32

// raw is a codec of messages that are only handed on.
type raw struct{}

// Name is that of the messages' own encoding.
func (raw) Name() string { return "proto" }

// Marshal gives the bytes of a *[]byte, or of a message of our own.
func (raw) Marshal(v any) ([]byte, error) {
	if b, ok := v.(*[]byte); ok {
		return *b, nil
	}
	return proto.Marshal(v.(proto.Message))
}

// Unmarshal is the reverse.
func (raw) Unmarshal(b []byte, v any) error {
	if to, ok := v.(*[]byte); ok {
		*to = append([]byte(nil), b...) // the buffer is used again
		return nil
	}
	return proto.Unmarshal(b, v.(proto.Message))
}

// handle answers every call of a client.
func (p *Proxy) handle(_ any, s grpc.ServerStream) error {
	method, ok := grpc.MethodFromServerStream(s)
	if !ok {
		return status.Error(codes.Internal, "a call without a method")
	}
	switch path.Base(method) {
	case "Reserve":
		return p.reserve(method, s)
	case "Status":
		if !p.answersSoon(s.Context()) {
			return p.status(s)
		}
	case "Hold":
		return p.hold(method, s)
	case "Shutdown":
		return p.shutdown(method, s)
	case "Start":
		return p.start(method, s)
	case "TensorBoard":
		return p.tensorBoard(s)
	}
	return p.forward(method, s, nil)
}

// reach waits for the driver.
func (p *Proxy) reach(ctx context.Context) (*grpc.ClientConn, error) {
	for {
		p.mu.Lock()
		conn, changed, over := p.conn, p.changed, p.over
		p.mu.Unlock()
		if over != nil {
			return nil, status.Error(codes.Unavailable, over.Error())
		}
		if conn != nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, status.Error(codes.Unavailable, "the cluster's driver does not answer: "+p.why())
		case <-changed:
		}
	}
}

// answerPatience is how long a driver that has answered before is awaited, before this
// process answers for it.
const answerPatience = 3 * time.Second

// answersSoon is whether the driver is there, or as good as that.
func (p *Proxy) answersSoon(ctx context.Context) bool {
	if p.connected() || !p.known() {
		return p.connected()
	}
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	_, err := p.reach(ctx)
	return err == nil
}

// forward hands a call on, with what the client has said already, and its answers back.
func (p *Proxy) forward(method string, s grpc.ServerStream, said [][]byte) error {
	ctx, cancel := context.WithCancel(s.Context())
	defer cancel()
	to, err := p.open(ctx, method)
	if err != nil {
		return err
	}
	go func() { // ends with the client's stream, which ends when this method returns
		for _, b := range said {
			if to.SendMsg(&b) != nil {
				return // the answer tells why
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

// explain says more of a call that broke off: whether the driver is gone, and whether
// the cluster is.
func (p *Proxy) explain(ctx context.Context, err error) error {
	if status.Code(err) != codes.Unavailable || ctx.Err() != nil {
		return err
	}
	p.suspect()
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	for {
		p.mu.Lock()
		conn, changed, over := p.conn, p.changed, p.over
		p.mu.Unlock()
		switch {
		case over != nil:
			return status.Error(codes.Unavailable, over.Error())
		case conn == nil:
			return status.Error(codes.Aborted, "the cluster's driver ended, and its engine starts it again: repeat the command")
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// open begins a call to the driver. It waits while there is none.
func (p *Proxy) open(ctx context.Context, method string) (grpc.ClientStream, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	out := metadata.NewOutgoingContext(ctx, md.Copy())
	for {
		conn, err := p.reach(ctx)
		if err != nil {
			return nil, err
		}
		to, err := conn.NewStream(out, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method, grpc.ForceCodec(raw{}), grpc.WaitForReady(true))
		if err == nil || conn.GetState() != connectivity.Shutdown {
			return to, err
		} // else it was given up meanwhile, for another
	}
}

// suspect has the driver looked for.
func (p *Proxy) suspect() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// reserve tells how the reservation stands: until the driver answers, for what it waits.
func (p *Proxy) reserve(method string, s grpc.ServerStream) error {
	var asked []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	for {
		p.mu.Lock()
		conn, changed, over := p.conn, p.changed, p.over
		p.mu.Unlock()
		if conn != nil {
			return p.forward(method, s, [][]byte{asked})
		}
		u := &clusterpb.ReserveUpdate{Executors: p.executors(), Waiting: p.why(), Seconds: time.Since(p.began).Seconds()}
		if h := p.remoteDriver(); h != nil {
			u.Allocation = h.ID()
		}
		if over != nil {
			u.Failure = failure(over)
		}
		if err := s.SendMsg(u); err != nil || over != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(time.Second): // durations move
		case <-s.Context().Done():
			return s.Context().Err()
		}
	}
}

// failure says why there is no cluster.
func failure(why error) *clusterpb.Failure {
	f := &clusterpb.Failure{Kind: "engine", Summary: why.Error(), ExitCode: 69}
	if errors.Is(why, errLate) {
		f.Kind, f.ExitCode, f.Remedy = "timeout", 75, "choose another --queue, or give --reserve-timeout more time"
	}
	return f
}

func (p *Proxy) executors() []*clusterpb.ExecutorStatus {
	var all []*clusterpb.ExecutorStatus
	for _, e := range cluster.ExecutorRequests(p.cfg.Request.GetRoles()) {
		all = append(all, &clusterpb.ExecutorStatus{Id: string(e.ID), Task: e.Task.String(), State: "pending", Cause: p.why()})
	}
	return all
}

// status is the cluster's while no driver answers.
func (p *Proxy) status(s grpc.ServerStream) error {
	var asked []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	host, _ := os.Hostname() // "" is shown as it is
	st := &clusterpb.ClusterStatus{
		Name: p.cfg.Name, Backend: p.cfg.Request.GetBackend(), State: "reserving", Executors: p.executors(), Dir: p.cfg.Dir, SinceUnix: p.cfg.Since.Unix(),
		IdleMillis: p.cfg.Request.GetIdleMillis(), DriverPid: int32(os.Getpid()), Owner: p.cfg.Request.GetOwner(), Roles: p.cfg.Request.GetRoles(), Host: host,
		Version: p.cfg.Version, Protocol: clusterpb.Protocol, Request: p.cfg.Request, BeginsItself: p.cfg.Begin != nil,
	}
	if h := p.remoteDriver(); h != nil {
		st.Allocation = h.ID()
	}
	p.mu.Lock()
	if p.over != nil {
		st.State = "failed"
	}
	p.mu.Unlock()
	return s.SendMsg(st)
}

// hold tells every driver of the cluster that a client is there.
func (p *Proxy) hold(method string, s grpc.ServerStream) error {
	var first []byte
	if err := s.RecvMsg(&first); err != nil {
		return err
	}
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
		p.suspect()
		select {
		case <-ctx.Done():
			return nil
		case <-p.done:
			return nil
		case <-time.After(time.Second): // then to the next driver
		}
	}
}

// shutdown has the driver release the cluster, and waits for the engine's end of it.
// Where no driver answers it is ended by force.
func (p *Proxy) shutdown(method string, s grpc.ServerStream) error {
	var asked []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	if !p.connected() {
		p.want()
		p.end()
	} else if lingers, err := p.released(s.Context(), method, asked, s); err != nil || lingers {
		return err
	}
	p.want()
	p.suspect()
	select {
	case <-p.done:
	case <-s.Context().Done():
		return s.Context().Err()
	case <-time.After(endLimit):
		return status.Error(codes.DeadlineExceeded, "the cluster is still being released")
	}
	return s.SendMsg(&clusterpb.ShutdownUpdate{Done: true})
}

func (p *Proxy) want() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
}

// openLimit is how long a driver that is asked to release the cluster may take to hear it.
const openLimit = 10 * time.Second

// released asks the driver to release the cluster, and shows what it says but for its
// last word, which lingers says was that its end takes longer. One that does not hear it
// is not waited for: the cluster is to be ended by force.
func (p *Proxy) released(ctx context.Context, method string, asked []byte, s grpc.ServerStream) (lingers bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	late := time.AfterFunc(openLimit, cancel)
	to, err := p.open(ctx, method)
	if !late.Stop() {
		p.end()
		return false, nil
	}
	if err == nil {
		err = to.SendMsg(&asked)
	}
	if err != nil {
		return false, err
	}
	_ = to.CloseSend() // it never fails
	for {
		u := &clusterpb.ShutdownUpdate{}
		err := to.RecvMsg(u)
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if u.GetText() == "" {
			continue
		}
		if err := s.SendMsg(u); err != nil || u.GetDone() {
			p.want()
			return true, err
		}
	}
}

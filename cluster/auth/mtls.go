package auth

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// clientName is the name in the certificate of clients of a hosted driver.
const clientName = "client"

// clientServices are the prefixes of the methods that are for clients alone.
var clientServices = []string{"/tfcluster.v1.Control/", "/tfcluster.v1.FeedControl/"}

// mayCall denies agents, which also hold certificates, the methods of clients. It is used on
// the port of a hosted driver, to which both connect.
func mayCall(ctx context.Context, method string) error {
	isClients := slices.ContainsFunc(clientServices, func(prefix string) bool { return strings.HasPrefix(method, prefix) })
	if isClients && PeerName(ctx) != clientName {
		return status.Error(codes.PermissionDenied, "only the cluster's owner may call this")
	}
	return nil
}

// OwnersOnly returns the options of a server to which agents and clients connect by TCP: only
// certificates of the owner may call the services of clients.
func OwnersOnly() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(
			func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
				if err := mayCall(ctx, info.FullMethod); err != nil {
					return nil, err
				}
				return next(ctx, req)
			}),
		grpc.ChainStreamInterceptor(
			func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
				if err := mayCall(s.Context(), info.FullMethod); err != nil {
					return err
				}
				return next(srv, s)
			}),
	}
}

// DialHosted returns a connection to a hosted driver; it connects on first use. The driver must
// prove that it holds a key of the authority.
func DialHosted(a *Authority, address string) (*grpc.ClientConn, error) {
	return dialAs(a, clientName, address)
}

func dialAs(a *Authority, name, address string) (*grpc.ClientConn, error) {
	config, err := a.config(name)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the driver at %s: %w", address, err)
	}
	return conn, nil
}

// PeerName returns the name in the certificate of a call's peer; "" if there is none.
func PeerName(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.PeerCertificates) == 0 {
		return ""
	}
	return info.State.PeerCertificates[0].Subject.CommonName
}

// Caller returns the name of the executor whose agent makes a call. It is an error if that executor does not run the
// task in whose name the agent calls.
type Caller func(ctx context.Context, task string) (executor string, err error)

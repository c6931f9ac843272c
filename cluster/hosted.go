package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Host is a Backend whose engine can run a cluster's driver itself, so that the cluster
// needs neither the machine of whoever reserved it, nor roads to it.
type Host interface {
	// Submit asks the engine to run a driver for the request. input, which is secret,
	// is what that driver reads. An error says in one line what the engine cannot give.
	Submit(ctx context.Context, req Request, input []byte) (Hosted, error)
	// Give puts a content of --files or --venv where the driver's Given has it, unless it
	// is there.
	Give(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob, from io.ReadSeeker) error
	// Find takes up what Saved held of one that was submitted.
	Find(r *clusterpb.ReserveRequest, saved []byte) (Hosted, error)
}

// Hosted is a driver that an engine runs, as whoever submitted it sees it. Its methods
// may be called from any goroutine.
type Hosted interface {
	// ID is the engine's name for it: application_….
	ID() string
	// Saved is what Find needs.
	Saved() []byte
	// Where is the HOST:PORT at which the driver answers now; "" while there is none,
	// for which waits is the engine's reason, if it tells one. It fails with ErrEnded
	// once the engine has ended it for good.
	Where(ctx context.Context) (address, waits string, err error)
	// End ends the driver and its executors by force, and removes what is left of them.
	// One that has ended is as good.
	End(ctx context.Context) error
	Close() error
}

// Hosting is what a driver that an engine runs has of its engine. The driver calls
// Listening before its backend is asked for executors.
type Hosting interface {
	// Host is the name of this machine for those who dial the driver.
	Host() string
	// Listening tells the engine where clients and agents dial, and the URL of a page
	// that shows the cluster.
	Listening(address, page string)
	// Guard lets only those see that page whom the engine has let.
	Guard(page http.Handler) http.Handler
	// LogPage is the URL of the engine's own page for what an executor's container
	// wrote; "": there is none.
	LogPage(id ExecutorID) string
	// Given opens a content that Host's Give was given, by its SHA-256 in hex.
	Given(ctx context.Context, digest string) (io.ReadCloser, error)
	// Keep keeps what the next driver, which the engine starts when this one dies, has
	// to know. It does not wait.
	Keep(state []byte)
	// Kept waits until what Keep was given before is kept.
	Kept(ctx context.Context) error
}

// clientName is the name in the certificate of a hosted driver's clients.
const clientName = "client"

const controlMethods = "/tfcluster.v1.Control/"

// mayCall refuses clients' methods to agents, which hold certificates too. It is for
// the port of a driver that is hosted, where both dial.
func mayCall(ctx context.Context, method string) error {
	if strings.HasPrefix(method, controlMethods) && peerName(ctx) != clientName {
		return status.Error(codes.PermissionDenied, "only the cluster's owner may call this")
	}
	return nil
}

// OwnersOnly are the options of a server that agents and clients dial by TCP: the
// Control service is for certificates of the owner's alone.
func OwnersOnly() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := mayCall(ctx, info.FullMethod); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.ChainStreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := mayCall(s.Context(), info.FullMethod); err != nil {
				return err
			}
			return next(srv, s)
		}),
	}
}

// DialHosted prepares a connection to a hosted driver, which is made when it is used.
// Only one that holds a key of the authority's is spoken to.
func DialHosted(a *Authority, address string) (*grpc.ClientConn, error) {
	return dialAs(a, clientName, address)
}

func dialAs(a *Authority, name, address string) (*grpc.ClientConn, error) {
	certPEM, keyPEM, err := a.Issue(name)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("load the certificate of %s: %w", name, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{pair}, RootCAs: pool, ServerName: coordinatorName, MinVersion: tls.VersionTLS13,
		})),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("dial the driver at %s: %w", address, err)
	}
	return conn, nil
}

// ErrEnded says that an engine has ended a driver that it ran.
var ErrEnded = errors.New("the engine has ended the cluster")

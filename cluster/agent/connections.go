package agent

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// connections are those to the driver, which are opened at their first calls.
type connections struct {
	main *grpc.ClientConn
	// services has the calls that last as long as a feed or a group, and end it if they break.
	services *grpc.ClientConn
}

func (c connections) close() {
	for _, conn := range []*grpc.ClientConn{c.main, c.services} {
		if conn != nil {
			_ = conn.Close() // the calls' errors are handled
		}
	}
}

// The main connection is opened anew soon after a cut of the network. The other one outlives the cut, as TCP does: the
// driver decides by heartbeats which executor is lost, and the agent by its grace when the driver is.
var (
	mainAlive     = keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 5 * time.Second}
	servicesAlive = keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 15 * time.Minute}
)

// connect returns the connections to the driver.
func connect(cfg *clusterpb.AgentConfig, address *resolver) (c connections, err error) {
	if c.main, err = dial(cfg, address, mainAlive); err != nil {
		return c, err
	}
	if c.services, err = dial(cfg, address, servicesAlive, grpc.WaitForReady(true)); err != nil {
		c.close()
	}
	return c, err
}

// dial returns a connection to the driver, which is opened at the first call. calls are options of every call.
func dial(cfg *clusterpb.AgentConfig, address *resolver, alive keepalive.ClientParameters,
	calls ...grpc.CallOption,
) (*grpc.ClientConn, error) {
	secure, err := identityTLS(cfg.GetIdentity())
	if err != nil {
		return nil, err
	}
	secure.ServerName = cfg.GetDriver().GetServerName()
	conn, err := grpc.NewClient("passthrough:///"+cfg.GetDriver().GetCoordinator(),
		grpc.WithTransportCredentials(credentials.NewTLS(secure)),
		grpc.WithContextDialer(address.dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithKeepaliveParams(alive),
		grpc.WithDefaultCallOptions(
			append(calls, grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage))...),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to the cluster's driver at %s: %w", cfg.GetDriver().GetCoordinator(), err)
	}
	return conn, nil
}

// identityTLS returns the agent's certificate, and the cluster's authority.
func identityTLS(identity *clusterpb.AgentIdentity) (*tls.Config, error) {
	cert, err := tls.X509KeyPair([]byte(identity.GetCertPem()), []byte(identity.GetKeyPem()))
	if err != nil {
		return nil, fmt.Errorf("the agent's certificate cannot be used: %w: shut the cluster down and reserve it again", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(identity.GetCaPem())) {
		return nil, errors.New("the agent's configuration has no certificate of the cluster's authority: " +
			"shut the cluster down and reserve it again")
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: authorities, MinVersion: tls.VersionTLS13}, nil
}

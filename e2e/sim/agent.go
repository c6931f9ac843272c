package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// config is what the driver tells an agent, as far as a simulated one needs it.
type config struct {
	ID         string `json:"executor_id"`
	Attempt    int32  `json:"attempt"`
	Driver     string `json:"coordinator"`
	ServerName string `json:"server_name"`
	CA         string `json:"ca_pem"`
	Cert       string `json:"cert_pem"`
	Key        string `json:"key_pem"`
	Number     int32  `json:"number"`
}

// agent is a simulated agent: a connection of its own with its own certificate, one
// Join stream and one Logs stream, and a task that writes one line and ends well.
type agent struct {
	cfg      config
	received *atomic.Int64   // bytes, of all agents
	finish   <-chan struct{} // closed when tasks are to write their line and end
	dialing  chan struct{}   // holds a token for each agent that is joining

	sending sync.Mutex
	join    grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction]
}

// rejoinPause is between two attempts of an agent to join.
const rejoinPause = 50 * time.Millisecond

// run joins, again if it must, and obeys until the driver releases the agent or ctx ends.
// An agent that was welcome does not join again: a connection that breaks is a fault.
func (a *agent) run(ctx context.Context) error {
	for {
		welcome, err := a.session(ctx)
		if err == nil || welcome || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rejoinPause):
		}
	}
}

// session is one connection. welcome is whether the driver took the agent in.
func (a *agent) session(ctx context.Context) (welcome bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	conn, err := a.dial()
	if err != nil {
		return false, err
	}
	defer conn.Close()
	select {
	case a.dialing <- struct{}{}:
	case <-ctx.Done():
		return false, ctx.Err()
	}
	joined := sync.OnceFunc(func() { <-a.dialing })
	defer joined()
	client := clusterpb.NewCoordinatorClient(conn)
	if a.join, err = client.Join(ctx, grpc.WaitForReady(true)); err != nil {
		return false, fmt.Errorf("join as %s: %w", a.cfg.ID, err)
	}
	err = a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Hello{Hello: &clusterpb.Hello{
		ExecutorId: a.cfg.ID, Attempt: a.cfg.Attempt, Incarnation: "sim-" + a.cfg.ID, Host: "node-" + a.cfg.ID + ".example.org", Address: "10.11.12.13",
		Version: version, OsArch: "linux/amd64", Pid: 1000 + a.cfg.Number,
	}}})
	if err != nil {
		return false, fmt.Errorf("join as %s: %w", a.cfg.ID, err)
	}
	for {
		in, err := a.join.Recv()
		if err != nil {
			return welcome, fmt.Errorf("agent %s: %w", a.cfg.ID, err)
		}
		switch in := in.GetInstruction().(type) {
		case *clusterpb.Instruction_Welcome:
			if refused := in.Welcome.GetRefused(); refused != "" {
				return true, errors.New(refused)
			}
			welcome = true
			joined()
			parts.Go(func() { a.beat(ctx, time.Duration(in.Welcome.GetHeartbeatMillis())*time.Millisecond) })
			err = a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Warmed{Warmed: &clusterpb.Warmed{
				Python: &clusterpb.Python{Executable: "/usr/bin/python3", Version: "3.12.3", Tensorflow: "2.21.0", Keras: "3.12.0", Zygote: true},
			}}})
		case *clusterpb.Instruction_Prepare:
			err = a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Prepared{Prepared: &clusterpb.Prepared{
				Run: in.Prepare.GetRun(), Attempt: in.Prepare.GetAttempt(), Ports: []int32{20000 + a.cfg.Number%40000},
			}}})
		case *clusterpb.Instruction_Launch:
			parts.Go(func() { a.task(ctx, client, in.Launch) })
		case *clusterpb.Instruction_Release:
			return true, nil
		}
		if err != nil {
			return welcome, fmt.Errorf("agent %s: %w", a.cfg.ID, err)
		}
	}
}

// dial connects as an agent does, and counts what comes.
func (a *agent) dial() (*grpc.ClientConn, error) {
	cert, err := tls.X509KeyPair([]byte(a.cfg.Cert), []byte(a.cfg.Key))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", a.cfg.ID, err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(a.cfg.CA)) {
		return nil, errors.New("read the cluster's authority: no certificate in ca_pem")
	}
	conn, err := grpc.NewClient("passthrough:///"+a.cfg.Driver,
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: authorities, ServerName: a.cfg.ServerName, MinVersion: tls.VersionTLS13,
		})),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return nil, err
			}
			return countedConn{c, a.received}, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("dial as %s: %w", a.cfg.ID, err)
	}
	return conn, nil
}

// countedConn counts the bytes that it reads.
type countedConn struct {
	net.Conn
	received *atomic.Int64
}

// Read implements net.Conn.
func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

func (a *agent) send(m *clusterpb.AgentMessage) error {
	a.sending.Lock()
	defer a.sending.Unlock()
	return a.join.Send(m)
}

// beat sends heartbeats until ctx ends. Agents do not beat at the same moment.
func (a *agent) beat(ctx context.Context, every time.Duration) {
	wait := rand.N(every)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-time.After(wait):
			wait = every
			beat := &clusterpb.Heartbeat{UnixNano: now.UnixNano()}
			if a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: beat}}) != nil {
				return // run tells why
			}
		}
	}
}

// task enters, and writes its line and ends once tasks are to finish.
func (a *agent) task(ctx context.Context, client clusterpb.CoordinatorClient, l *clusterpb.Launch) {
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Started{Started: &clusterpb.Started{Pid: 2000 + a.cfg.Number}}})
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Entered{Entered: &clusterpb.Entered{}}})
	logs, err := client.Logs(ctx)
	if err != nil {
		return // run tells why
	}
	select {
	case <-ctx.Done():
		return
	case <-a.finish:
	}
	err = logs.Send(&clusterpb.LogBatch{
		Run: l.GetRun(), Task: l.GetTask(), Attempt: l.GetAttempt(), EndOfStream: true,
		Lines: []*clusterpb.Line{{UnixNano: time.Now().UnixNano(), Text: "the one line of " + l.GetTask()}},
	})
	if err != nil {
		return
	}
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{Lines: 1}}})
	_, _ = logs.Recv() // the acknowledgement
}

// tell sends an event of the launch's task; a stream that broke is told by run.
func (a *agent) tell(l *clusterpb.Launch, e *clusterpb.TaskEvent) {
	e.Run, e.Attempt, e.Task = l.GetRun(), l.GetAttempt(), l.GetTask()
	_ = a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: e}})
}

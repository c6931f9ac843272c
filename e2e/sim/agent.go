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
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// agent is a simulated agent: a separate connection with its own certificate, one Join stream and one Logs
// stream, and a task that writes one line and succeeds.
type agent struct {
	cfg      *clusterpb.AgentConfig
	received *atomic.Int64   // bytes received by all agents
	rejoined *atomic.Int64   // number of repeated joins and Logs streams
	finish   <-chan struct{} // closed when tasks must write their line and end
	dialing  chan struct{}   // contains a token for each joining agent

	tasks sync.WaitGroup
	mu    sync.Mutex
	// guarded by mu
	join     grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction] // nil while disconnected
	warm     bool
	messages []*clusterpb.AgentMessage // of the task; repeated when the agent joins again
	launch   *clusterpb.Launch
}

// rejoinPause is the time between two attempts to join.
const rejoinPause = 50 * time.Millisecond

// run joins, and again if the stream breaks, and handles instructions until the driver releases the agent
// or ctx ends.
func (a *agent) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer a.tasks.Wait()
	defer cancel()
	conn, err := a.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	client := clusterpb.NewCoordinatorClient(conn)
	for {
		over, err := a.session(ctx, client)
		if over || ctx.Err() != nil {
			return err
		}
		a.rejoined.Add(1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(rejoinPause):
		}
	}
}

// session handles one Join stream. over reports that the agent must not join again.
func (a *agent) session(life context.Context, client clusterpb.CoordinatorClient) (over bool, err error) {
	ctx, cancel := context.WithCancel(life)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer cancel()
	select {
	case a.dialing <- struct{}{}:
	case <-ctx.Done():
		return true, ctx.Err()
	}
	joined := sync.OnceFunc(func() { <-a.dialing })
	defer joined()
	stream, err := client.Join(ctx, grpc.WaitForReady(true))
	if err != nil {
		return false, fmt.Errorf("join as %s: %w", a.cfg.GetIdentity().GetExecutorId(), err)
	}
	a.sendHello(stream)
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.join = nil
	}()
	for {
		in, err := stream.Recv()
		if err != nil {
			return false, fmt.Errorf("agent %s: %w", a.cfg.GetIdentity().GetExecutorId(), err)
		}
		switch in := in.GetInstruction().(type) {
		case *clusterpb.Instruction_Welcome:
			if refused := in.Welcome.GetRefused(); refused != "" {
				return true, errors.New(refused)
			}
			joined()
			parts.Go(func() { a.beat(ctx, time.Duration(in.Welcome.GetHeartbeatMillis())*time.Millisecond) })
			parts.Go(func() { a.ship(ctx, client) })
			a.reportWarm()
		case *clusterpb.Instruction_Prepare:
			a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Prepared{Prepared: &clusterpb.Prepared{
				Run: in.Prepare.GetRun(), Attempt: in.Prepare.GetAttempt(),
				Ports: []int32{20000 + a.cfg.GetIdentity().GetNumber()%40000},
			}}})
		case *clusterpb.Instruction_Launch:
			a.launchTask(life, in.Launch)
		case *clusterpb.Instruction_Release:
			return true, nil
		}
	}
}

func python() *clusterpb.Python {
	return &clusterpb.Python{
		Executable: "/usr/bin/python3", Version: "3.12.3", Tensorflow: "2.21.0", Keras: "3.12.0", Zygote: true,
	}
}

// sendHello sends Hello on a new stream, and the messages that the driver may have missed.
func (a *agent) sendHello(stream grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	hello := &clusterpb.Hello{
		ExecutorId: a.cfg.GetIdentity().GetExecutorId(), Attempt: a.cfg.GetIdentity().GetAttempt(),
		Incarnation: "sim-" + a.cfg.GetIdentity().GetExecutorId(), Host: "node-" + a.cfg.GetIdentity().GetExecutorId() +
			".example.org", Address: "10.11.12.13", Version: version, Protocol: clusterpb.Protocol, Pid: 1000 +
			a.cfg.GetIdentity().GetNumber(), Warmed: a.warm,
	}
	if a.warm {
		hello.Python = python()
	}
	if l := a.launch; l != nil {
		hello.Tasks = []*clusterpb.RunningTask{{Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask()}}
	}
	a.join = stream
	// Recv returns the error.
	_ = stream.Send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Hello{Hello: hello}})
	for _, m := range a.messages {
		_ = stream.Send(m)
	}
}

// reportWarm reports once that Python is warm.
func (a *agent) reportWarm() {
	a.mu.Lock()
	warm := a.warm
	a.warm = true
	a.mu.Unlock()
	if !warm {
		a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Warmed{Warmed: &clusterpb.Warmed{Python: python()}}})
	}
}

// dial connects as an agent does, and counts the received bytes.
func (a *agent) dial() (*grpc.ClientConn, error) {
	cert, err := tls.X509KeyPair([]byte(a.cfg.GetIdentity().GetCertPem()), []byte(a.cfg.GetIdentity().GetKeyPem()))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", a.cfg.GetIdentity().GetExecutorId(), err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(a.cfg.GetIdentity().GetCaPem())) {
		return nil, errors.New("the agent's configuration has no certificate of the cluster's authority: " +
			"shut the cluster down and reserve it again")
	}
	conn, err := grpc.NewClient("passthrough:///"+a.cfg.GetDriver().GetCoordinator(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: authorities, ServerName: a.cfg.GetDriver().GetServerName(),
			MinVersion: tls.VersionTLS13,
		})),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", to)
			if err != nil {
				return nil, err
			}
			return countedConn{c, a.received}, nil
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{
				BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second,
			},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)))
	if err != nil {
		return nil, fmt.Errorf("dial as %s: %w", a.cfg.GetIdentity().GetExecutorId(), err)
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

// send sends a message on the stream, if there is one. Recv returns the error of a broken stream.
func (a *agent) send(m *clusterpb.AgentMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.join != nil {
		_ = a.join.Send(m)
	}
}

// beat sends heartbeats until ctx ends. The first delay is random, so that agents do not send at the same
// time.
func (a *agent) beat(ctx context.Context, every time.Duration) {
	wait := rand.N(every)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-time.After(wait):
			wait = every
			a.send(&clusterpb.AgentMessage{
				Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: &clusterpb.Heartbeat{UnixNano: now.UnixNano()}},
			})
		}
	}
}

// launchTask starts the task of a Launch.
func (a *agent) launchTask(ctx context.Context, l *clusterpb.Launch) {
	a.mu.Lock()
	a.launch, a.messages = l, nil
	a.mu.Unlock()
	a.report(l, &clusterpb.TaskEvent{
		Event: &clusterpb.TaskEvent_Started{Started: &clusterpb.Started{Pid: 2000 + a.cfg.GetIdentity().GetNumber()}},
	})
	a.report(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Entered{Entered: &clusterpb.Entered{}}})
	a.tasks.Go(func() { a.task(ctx, l) })
}

// task reports the task's end when tasks must finish.
func (a *agent) task(ctx context.Context, l *clusterpb.Launch) {
	select {
	case <-ctx.Done():
		return
	case <-a.finish:
	}
	a.report(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{Lines: 1}}})
}

// ship holds a Logs stream from the start, as agents do, and sends the task's line when tasks must finish.
// It opens another stream if one breaks.
func (a *agent) ship(ctx context.Context, client clusterpb.CoordinatorClient) {
	for ctx.Err() == nil {
		logs, err := client.Logs(ctx)
		if err == nil {
			err = a.sendLine(ctx, logs)
		}
		if err == nil || status.Code(err) == codes.Canceled {
			return
		}
		a.rejoined.Add(1)
		time.Sleep(rejoinPause)
	}
}

func (a *agent) sendLine(ctx context.Context,
	logs grpc.BidiStreamingClient[clusterpb.LogBatch, clusterpb.LogAck],
) error {
	select {
	case <-ctx.Done():
		return nil
	case <-logs.Context().Done():
		return logs.Context().Err()
	case <-a.finish:
	}
	a.mu.Lock()
	l := a.launch
	a.mu.Unlock()
	if l == nil {
		return nil // the simulation ended before a run
	}
	_ = logs.Send(&clusterpb.LogBatch{
		Run: l.GetRun(), Task: l.GetTask(), Attempt: l.GetAttempt(), EndOfStream: true,
		Lines: []*clusterpb.Line{{UnixNano: time.Now().UnixNano(), Text: "the one line of " + l.GetTask()}},
	}) // Recv returns the error
	_, err := logs.Recv()
	return err
}

// report sends an event of the task, and again after the agent has joined again.
func (a *agent) report(l *clusterpb.Launch, e *clusterpb.TaskEvent) {
	e.Run, e.Attempt, e.Task = l.GetRun(), l.GetAttempt(), l.GetTask()
	m := &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: e}}
	a.mu.Lock()
	a.messages = append(a.messages, m)
	a.mu.Unlock()
	a.send(m)
}

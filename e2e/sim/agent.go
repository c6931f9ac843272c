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

// agent is a simulated agent: a connection of its own with its own certificate, one
// Join stream and one Logs stream, and a task that writes one line and ends well.
type agent struct {
	cfg      *clusterpb.AgentConfig
	received *atomic.Int64   // bytes, of all agents
	rejoined *atomic.Int64   // how often one had to join again
	finish   <-chan struct{} // closed when tasks are to write their line and end
	dialing  chan struct{}   // holds a token for each agent that is joining

	tasks sync.WaitGroup
	mu    sync.Mutex
	// guarded by mu
	join   grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction] // nil while there is none
	warm   bool
	told   []*clusterpb.AgentMessage // of the task, to be told again when it joins again
	launch *clusterpb.Launch
}

// rejoinPause is between two attempts of an agent to join.
const rejoinPause = 50 * time.Millisecond

// run joins, again where a stream breaks, and obeys until the driver releases the agent or
// ctx ends.
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

// session is one Join stream. over is whether there is to be no other.
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
	a.greet(stream)
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
			a.warmed()
		case *clusterpb.Instruction_Prepare:
			a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Prepared{Prepared: &clusterpb.Prepared{
				Run: in.Prepare.GetRun(), Attempt: in.Prepare.GetAttempt(), Ports: []int32{20000 + a.cfg.GetIdentity().GetNumber()%40000},
			}}})
		case *clusterpb.Instruction_Launch:
			a.begin(life, in.Launch)
		case *clusterpb.Instruction_Release:
			return true, nil
		}
	}
}

func python() *clusterpb.Python {
	return &clusterpb.Python{Executable: "/usr/bin/python3", Version: "3.12.3", Tensorflow: "2.21.0", Keras: "3.12.0", Zygote: true}
}

// greet says hello on a new stream, and what the driver may have missed.
func (a *agent) greet(stream grpc.BidiStreamingClient[clusterpb.AgentMessage, clusterpb.Instruction]) {
	a.mu.Lock()
	defer a.mu.Unlock()
	hello := &clusterpb.Hello{
		ExecutorId: a.cfg.GetIdentity().GetExecutorId(), Attempt: a.cfg.GetIdentity().GetAttempt(), Incarnation: "sim-" + a.cfg.GetIdentity().GetExecutorId(), Host: "node-" + a.cfg.GetIdentity().GetExecutorId() + ".example.org", Address: "10.11.12.13",
		Version: version, Protocol: clusterpb.Protocol, Pid: 1000 + a.cfg.GetIdentity().GetNumber(), Warmed: a.warm,
	}
	if a.warm {
		hello.Python = python()
	}
	if l := a.launch; l != nil {
		hello.Tasks = []*clusterpb.RunningTask{{Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask()}}
	}
	a.join = stream
	_ = stream.Send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Hello{Hello: hello}}) // Recv tells why it failed
	for _, m := range a.told {
		_ = stream.Send(m)
	}
}

// warmed says, once, that Python is warm.
func (a *agent) warmed() {
	a.mu.Lock()
	warm := a.warm
	a.warm = true
	a.mu.Unlock()
	if !warm {
		a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Warmed{Warmed: &clusterpb.Warmed{Python: python()}}})
	}
}

// dial connects as an agent does, and counts what comes.
func (a *agent) dial() (*grpc.ClientConn, error) {
	cert, err := tls.X509KeyPair([]byte(a.cfg.GetIdentity().GetCertPem()), []byte(a.cfg.GetIdentity().GetKeyPem()))
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s: %w", a.cfg.GetIdentity().GetExecutorId(), err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM([]byte(a.cfg.GetIdentity().GetCaPem())) {
		return nil, errors.New("read the cluster's authority: no certificate in ca_pem")
	}
	conn, err := grpc.NewClient("passthrough:///"+a.cfg.GetDriver().GetCoordinator(),
		grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
			Certificates: []tls.Certificate{cert}, RootCAs: authorities, ServerName: a.cfg.GetDriver().GetServerName(), MinVersion: tls.VersionTLS13,
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

// send sends a message on the stream, if there is one; that it broke is told by Recv.
func (a *agent) send(m *clusterpb.AgentMessage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.join != nil {
		_ = a.join.Send(m)
	}
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
			a.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Heartbeat{Heartbeat: &clusterpb.Heartbeat{UnixNano: now.UnixNano()}}})
		}
	}
}

// begin starts the launch's task.
func (a *agent) begin(ctx context.Context, l *clusterpb.Launch) {
	a.mu.Lock()
	a.launch, a.told = l, nil
	a.mu.Unlock()
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Started{Started: &clusterpb.Started{Pid: 2000 + a.cfg.GetIdentity().GetNumber()}}})
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Entered{Entered: &clusterpb.Entered{}}})
	a.tasks.Go(func() { a.task(ctx, l) })
}

// task ends once tasks are to finish.
func (a *agent) task(ctx context.Context, l *clusterpb.Launch) {
	select {
	case <-ctx.Done():
		return
	case <-a.finish:
	}
	a.tell(l, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Exited{Exited: &clusterpb.Exited{Lines: 1}}})
}

// ship holds a Logs stream, as agents do from the first, and sends the one line of the
// task on it once tasks are to finish. A stream that breaks is opened again.
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

func (a *agent) sendLine(ctx context.Context, logs grpc.BidiStreamingClient[clusterpb.LogBatch, clusterpb.LogAck]) error {
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
		return nil // the simulation ends before a run
	}
	_ = logs.Send(&clusterpb.LogBatch{
		Run: l.GetRun(), Task: l.GetTask(), Attempt: l.GetAttempt(), EndOfStream: true,
		Lines: []*clusterpb.Line{{UnixNano: time.Now().UnixNano(), Text: "the one line of " + l.GetTask()}},
	}) // Recv tells why it failed
	_, err := logs.Recv()
	return err
}

// tell sends an event of the launch's task, and again when the agent joins again.
func (a *agent) tell(l *clusterpb.Launch, e *clusterpb.TaskEvent) {
	e.Run, e.Attempt, e.Task = l.GetRun(), l.GetAttempt(), l.GetTask()
	m := &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Task{Task: e}}
	a.mu.Lock()
	a.told = append(a.told, m)
	a.mu.Unlock()
	a.send(m)
}

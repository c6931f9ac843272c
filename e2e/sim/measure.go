package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/client"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// figures are the results of a simulation.
type figures struct {
	Agents       int     `json:"agents"`
	Certificates float64 `json:"certificates_seconds"` // until all agents have their configurations
	Joined       float64 `json:"joined_seconds"`       // from the first dial until ready
	JoinedCPU    float64 `json:"joined_cpu_seconds"`   // of the driver
	ReadyRSS     int64   `json:"ready_rss_bytes"`
	Entered      float64 `json:"entered_seconds"` // from the start until all tasks have entered
	EnteredCPU   float64 `json:"entered_cpu_seconds"`
	EnteredBytes int64   `json:"entered_bytes"` // sent to all agents
	Ended        float64 `json:"ended_seconds"` // until the line and the end of each task
	EndedCPU     float64 `json:"ended_cpu_seconds"`
	PeakRSS      int64   `json:"peak_rss_bytes"`
	Lines        int64   `json:"lines"`
	Rejoined     int64   `json:"rejoined"` // broken streams, as on an overloaded machine
}

// maxJoining is how many agents may be joining at a time: they share this process's CPU time, and a
// handshake has a time limit.
const maxJoining = 128

// clusterName is short, since paths of sockets must be.
const clusterName = "s"

// simulation is a driver and its simulated agents.
type simulation struct {
	n      int
	folder string
	client *client.Client
	pid    int // of the driver

	configs    []*clusterpb.AgentConfig
	received   atomic.Int64  // bytes received by all agents
	rejoined   atomic.Int64  // broken streams
	finish     chan struct{} // closed by finishOnce, when tasks must end
	finishOnce func()
	dialing    chan struct{} // contains a token for each joining agent
	agents     sync.WaitGroup
	failed     chan error // error of the first agent that fails; capacity 1
	stop       context.CancelFunc
}

// measure simulates the life of a cluster of n agents.
func measure(ctx context.Context, n int) (f figures, err error) {
	began := time.Now()
	s, err := reserve(ctx, n)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	f.Agents, f.Certificates = n, time.Since(began).Seconds()
	before, err := usageOf(s.pid)
	if err != nil {
		return f, err
	}
	began = time.Now()
	s.join(ctx, s.configs)
	if err := s.ready(ctx); err != nil {
		return f, err
	}
	f.Joined = time.Since(began).Seconds()
	ready, err := usageOf(s.pid)
	if err != nil {
		return f, err
	}
	f.JoinedCPU, f.ReadyRSS = ready.cpu-before.cpu, ready.rss
	return f, s.playRun(ctx, &f)
}

// playRun starts a run, waits until its tasks have entered, and has them write a line and end.
func (s *simulation) playRun(ctx context.Context, f *figures) error {
	before, err := usageOf(s.pid)
	if err != nil {
		return err
	}
	bytes, began := s.received.Load(), time.Now()
	if err := s.start(ctx); err != nil {
		return err
	}
	f.Entered, f.EnteredBytes = time.Since(began).Seconds(), s.received.Load()-bytes
	entered, err := usageOf(s.pid)
	if err != nil {
		return err
	}
	f.EnteredCPU = entered.cpu - before.cpu
	began = time.Now()
	if f.Lines, err = s.end(ctx); err != nil {
		return err
	}
	f.Ended = time.Since(began).Seconds()
	ended, err := usageOf(s.pid)
	if err != nil {
		return err
	}
	f.EndedCPU, f.PeakRSS, f.Rejoined = ended.cpu-entered.cpu, ended.peak, s.rejoined.Load()
	return nil
}

// reserve starts the driver and reads the agents' configurations.
func reserve(ctx context.Context, n int) (_ *simulation, err error) {
	finish := make(chan struct{})
	s := &simulation{
		n: n, finish: finish, finishOnce: sync.OnceFunc(func() { close(finish) }), dialing: make(chan struct{}, maxJoining),
		failed: make(chan error, 1), stop: func() {},
	}
	if s.folder, err = os.MkdirTemp("", "sim-"); err != nil {
		return nil, fmt.Errorf("create the simulation's folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for name, value := range map[string]string{"TFCLUSTER_HOME": s.folder, "XDG_RUNTIME_DIR": s.folder} {
		if err := os.Setenv(name, value); err != nil {
			return nil, fmt.Errorf("set the simulation's folder: %w", err)
		}
	}
	ln, err := net.Listen("unix", filepath.Join(s.folder, "agents.sock"))
	if err != nil {
		return nil, fmt.Errorf("listen for the driver: %w", err)
	}
	defer ln.Close()
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	s.client, err = client.Launch(ctx, program, &clusterpb.ReserveRequest{
		Name: clusterName, Backend: engineName, Roles: []*clusterpb.Role{{Name: cluster.Worker, Count: int32(n)}},
		Dir: filepath.Join(s.folder, "runs"), TimeoutMillis: (10 * time.Minute).Milliseconds(),
		Engine: map[string]string{socketKey: ln.Addr().String()},
	})
	if err != nil {
		return nil, err
	}
	st, err := s.client.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return nil, fmt.Errorf("get the driver's process ID: %w", err)
	}
	s.pid = int(st.GetDriverPid())
	return s, s.readConfigs(ln)
}

// readConfigs reads the configuration of each agent.
func (s *simulation) readConfigs(ln net.Listener) error {
	conn, err := ln.Accept()
	if err != nil {
		return fmt.Errorf("wait for the driver's backend: %w", err)
	}
	defer conn.Close()
	from := json.NewDecoder(conn)
	for range s.n {
		var encoded json.RawMessage
		if err := from.Decode(&encoded); err != nil {
			return fmt.Errorf("read an agent's configuration: %w", err)
		}
		c, err := clusterpb.ReadAgentConfig(bytes.NewReader(encoded))
		if err != nil {
			return err
		}
		s.configs = append(s.configs, c)
	}
	return nil
}

// join lets agents join. close ends them.
func (s *simulation) join(ctx context.Context, configs []*clusterpb.AgentConfig) {
	stop := s.stop
	ctx, cancel := context.WithCancel(ctx)
	s.stop = func() { stop(); cancel() }
	for _, c := range configs {
		a := &agent{cfg: c, received: &s.received, rejoined: &s.rejoined, finish: s.finish, dialing: s.dialing}
		s.agents.Go(func() {
			if err := a.run(ctx); err != nil && ctx.Err() == nil {
				select {
				case s.failed <- err:
				default: // the error of another agent is reported
				}
			}
		})
	}
}

// ready waits until every executor is ready.
func (s *simulation) ready(ctx context.Context) error {
	return watch(ctx, s, func(ctx context.Context) (grpc.ServerStreamingClient[clusterpb.ReserveUpdate], error) {
		return s.client.Reserve(ctx, &clusterpb.ReserveRequest{})
	}, func(u *clusterpb.ReserveUpdate) (bool, error) {
		return u.GetReady(), failure(u.GetFailure())
	})
}

// start starts a run, and waits until every task has entered.
func (s *simulation) start(ctx context.Context) error {
	return watch(ctx, s, func(ctx context.Context) (grpc.ServerStreamingClient[clusterpb.StartUpdate], error) {
		return s.client.Start(ctx, &clusterpb.StartRequest{
			Program: &clusterpb.Program{
				Kind: clusterpb.Program_SCRIPT, Name: "simulated.py", Body: &clusterpb.Blob{Data: []byte("pass\n")},
			},
			Options: &clusterpb.RunOptions{Mode: "train", Epochs: 1},
		})
	}, func(u *clusterpb.StartUpdate) (bool, error) {
		return u.GetEntered(), failure(u.GetFailure())
	})
}

// end lets every task write a line and end, and follows the run to its end.
func (s *simulation) end(ctx context.Context) (lines int64, err error) {
	err = watch(ctx, s, func(ctx context.Context) (grpc.ServerStreamingClient[clusterpb.RunUpdate], error) {
		return s.client.Follow(ctx,
			&clusterpb.FollowRequest{Show: "all", FromStart: true, Burst: 200, BurstBytes: 256 << 10, LineBytes: 4 << 10})
	}, func(u *clusterpb.RunUpdate) (bool, error) {
		s.finishOnce() // the stream is open before the first line is written
		if u.GetStatus() != nil {
			lines = u.GetStatus().GetLines()
		}
		return u.GetFinal(), failure(u.GetStatus().GetFailure())
	})
	return lines, err
}

// watch reads a stream of the driver until last reports the last update. It fails if an agent fails.
func watch[U any](ctx context.Context, s *simulation, open func(context.Context) (grpc.ServerStreamingClient[U], error),
	last func(*U) (bool, error),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watching := make(chan struct{})
	defer close(watching)
	s.agents.Go(func() {
		select {
		case err := <-s.failed:
			cancel(err)
		case <-watching:
		}
	})
	stream, err := open(ctx)
	if err != nil {
		return err
	}
	for {
		u, err := stream.Recv()
		switch {
		case context.Cause(ctx) != nil:
			return context.Cause(ctx)
		case errors.Is(err, io.EOF):
			return errors.New("the driver's stream ended early")
		case err != nil:
			return err
		}
		if done, err := last(u); done || err != nil {
			return err
		}
	}
}

func failure(f *clusterpb.Failure) error {
	if f == nil {
		return nil
	}
	return errors.New(f.GetSummary())
}

// close ends the driver and the agents, and removes the folder.
func (s *simulation) close() error {
	var err error
	if s.client != nil {
		err = errors.Join(s.shutdown(), s.client.Close())
	}
	s.stop()
	s.finishOnce()
	s.agents.Wait()
	if rerr := os.RemoveAll(s.folder); rerr != nil {
		err = errors.Join(err, fmt.Errorf("remove the simulation's folder: %w", rerr))
	}
	return err
}

// shutdownLimit is how long the driver may take to end.
const shutdownLimit = 30 * time.Second

func (s *simulation) shutdown() error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownLimit)
	defer cancel()
	stream, err := s.client.Shutdown(ctx, &clusterpb.ShutdownRequest{Force: true, Reason: "the simulation is over"})
	for err == nil {
		_, err = stream.Recv()
	}
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("shut the driver down: %w", err)
	}
	for s.pid != 0 && state.ProcessOf(s.pid).Alive() { // it removes its state after the last message
		select {
		case <-ctx.Done():
			return fmt.Errorf("the driver, process %d, has not ended", s.pid)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

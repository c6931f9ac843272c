package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// patience bounds every wait of a test for something that must come.
const patience = 90 * time.Second

// coordinator is a scripted one: it keeps what an agent sends and lets a test
// wait for it.
type coordinator struct {
	clusterpb.UnimplementedCoordinatorServer
	t       *testing.T
	warmUp  *clusterpb.WarmUp
	welcome *clusterpb.Welcome
	ca      authority

	mu       sync.Mutex
	change   *sync.Cond
	server   *grpc.Server
	address  string
	stream   grpc.BidiStreamingServer[clusterpb.AgentMessage, clusterpb.Instruction]
	joins    int
	messages []*clusterpb.AgentMessage
	lines    []*clusterpb.Line
	next     map[string]uint64
	lost     uint64
	ends     []tasklog.Key
	muted    bool // acknowledge nothing
	blobs    map[string][]byte
	files    map[string][]byte

	syncLimit int                // bytes after which a Sync stream breaks; 0: none
	keeper    *runfiles.Receiver // takes whole files; nil: nobody does
	mayPut    chan struct{}      // closed when Put is let through; nil: at once
}

func newCoordinator(t *testing.T, warmUp *clusterpb.WarmUp) *coordinator {
	t.Helper()
	c := &coordinator{
		t: t, warmUp: warmUp, ca: newAuthority(t), next: map[string]uint64{}, blobs: map[string][]byte{},
		files: map[string][]byte{},
	}
	c.change = sync.NewCond(&c.mu)
	c.welcome = &clusterpb.Welcome{
		Cluster: "test", HeartbeatMillis: 200, OrphanGraceMillis: 60_000, IdleMillis: 60_000, WarmUp: warmUp,
	}
	c.listen("127.0.0.1:0")
	t.Cleanup(func() { c.stop() })
	return c
}

func (c *coordinator) listen(address string) {
	c.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		c.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(c.ca.server(c.t)), grpc.MaxRecvMsgSize(maxMessage), grpc.WaitForHandlers(true))
	clusterpb.RegisterCoordinatorServer(server, c)
	c.mu.Lock()
	c.server, c.address = server, l.Addr().String()
	c.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

// stop takes the coordinator away, as a killed driver does.
func (c *coordinator) stop() {
	c.mu.Lock()
	server := c.server
	c.stream = nil
	c.mu.Unlock()
	server.Stop()
}

func (c *coordinator) Join(stream grpc.BidiStreamingServer[clusterpb.AgentMessage, clusterpb.Instruction]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	if first.GetHello() == nil {
		return status.Error(codes.InvalidArgument, "no Hello")
	}
	if err := stream.Send(&clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_Welcome{Welcome: c.welcome},
	}); err != nil {
		return err
	}
	c.mu.Lock()
	c.stream = stream
	c.joins++
	c.messages = append(c.messages, first)
	c.change.Broadcast()
	c.mu.Unlock()
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.messages = append(c.messages, m)
		c.change.Broadcast()
		c.mu.Unlock()
	}
}

func (c *coordinator) Logs(stream grpc.BidiStreamingServer[clusterpb.LogBatch, clusterpb.LogAck]) error {
	for {
		b, err := stream.Recv()
		if err != nil {
			return err
		}
		key := fmt.Sprintf("%d.%d/%s", b.GetRun(), b.GetAttempt(), b.GetTask())
		c.mu.Lock()
		c.lost += b.GetLost()
		for _, line := range b.GetLines() {
			if line.GetSeq() >= c.next[key] {
				c.lines = append(c.lines, line)
				c.next[key] = line.GetSeq() + 1
			}
		}
		if end := (tasklog.Key{Run: b.GetRun(), Attempt: b.GetAttempt(), Task: b.GetTask()}); b.GetEndOfStream() &&
			!slices.Contains(c.ends, end) {
			c.ends = append(c.ends, end)
		}
		next, muted := c.next[key], c.muted
		c.change.Broadcast()
		c.mu.Unlock()
		if muted {
			continue
		}
		if err := stream.Send(&clusterpb.LogAck{
			Run: b.GetRun(), Attempt: b.GetAttempt(), Task: b.GetTask(), Next: next,
		}); err != nil {
			return err
		}
	}
}

// do sends an instruction.
func (c *coordinator) do(i *clusterpb.Instruction) {
	c.t.Helper()
	c.mu.Lock()
	stream := c.stream
	c.mu.Unlock()
	if stream == nil {
		c.t.Fatal("no agent is joined")
	}
	if err := stream.Send(i); err != nil {
		c.t.Fatal(err)
	}
}

// await waits until found says so; what names it in the failure.
func (c *coordinator) await(what string, found func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	wake := time.AfterFunc(patience, func() { c.mu.Lock(); c.change.Broadcast(); c.mu.Unlock() })
	defer wake.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for !found() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s did not come within %v; messages: %v; lines: %v", what, patience, c.messages, c.lines)
		}
		c.change.Wait()
	}
}

// event waits for a task's event that match accepts.
func (c *coordinator) event(what string, match func(*clusterpb.TaskEvent) bool) *clusterpb.TaskEvent {
	c.t.Helper()
	var found *clusterpb.TaskEvent
	c.await(what, func() bool {
		for _, m := range c.messages {
			if e := m.GetTask(); e != nil && match(e) {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// started waits for the process of a run's task and returns its pid.
func (c *coordinator) started(run int32) int {
	return int(c.event("the start",
		func(e *clusterpb.TaskEvent) bool { return e.GetRun() == run && e.GetStarted() != nil }).GetStarted().GetPid())
}

func (c *coordinator) exited(run int32) *clusterpb.Exited {
	c.t.Helper()
	return c.event("the exit",
		func(e *clusterpb.TaskEvent) bool { return e.GetRun() == run && e.GetExited() != nil }).GetExited()
}

// text waits for the end of a run's lines and returns them.
func (c *coordinator) text(run int32) string {
	c.t.Helper()
	c.await("the end of the lines", func() bool {
		return slices.ContainsFunc(c.ends, func(k tasklog.Key) bool { return k.Run == run })
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	for _, line := range c.lines {
		fmt.Fprintf(&text, "%s\n", line.GetText())
	}
	return text.String()
}

// prepare asks for ports and returns the one held.
func (c *coordinator) prepare(run, attempt int32) int32 {
	c.t.Helper()
	c.do(&clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_Prepare{Prepare: &clusterpb.Prepare{Run: run, Attempt: attempt}},
	})
	var port int32
	c.await("Prepared", func() bool {
		for _, m := range c.messages {
			if p := m.GetPrepared(); p.GetRun() == run && p.GetAttempt() == attempt && len(p.GetPorts()) > 0 {
				port = p.GetPorts()[0]
				return true
			}
		}
		return false
	})
	return port
}

func (c *coordinator) launch(l *clusterpb.Launch) {
	c.t.Helper()
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Launch{Launch: l}})
}

// cell is a launch of a cell's text as worker:0.
func (c *coordinator) cell(run int32, source string) *clusterpb.Launch {
	return &clusterpb.Launch{
		Run: run, Task: "worker:0", NumWorkers: 1,
		Program:     &clusterpb.Program{Kind: clusterpb.Program_CELL, Name: "cell [7]", Body: c.blob(source)},
		Directories: &clusterpb.Directories{Dir: filepath.Join(c.t.TempDir(), "run-001")},
	}
}

func (c *coordinator) endRun(run int32, grace time.Duration) {
	c.t.Helper()
	c.do(&clusterpb.Instruction{
		Instruction: &clusterpb.Instruction_EndRun{EndRun: &clusterpb.EndRun{Run: run, GraceMillis: grace.Milliseconds()}},
	})
}

func (c *coordinator) warmed() *clusterpb.Python {
	c.t.Helper()
	var python *clusterpb.Python
	c.await("Warmed", func() bool {
		for _, m := range c.messages {
			if m.GetWarmed() != nil {
				python = m.GetWarmed().GetPython()
			} else if m.GetHello().GetWarmed() {
				python = m.GetHello().GetPython()
			}
		}
		return python != nil
	})
	return python
}

// runAgent starts an agent that ends with the test.
func (c *coordinator) runAgent(change func(*clusterpb.AgentConfig)) (done <-chan error) {
	c.t.Helper()
	own := c.t.TempDir()
	cfg := &clusterpb.AgentConfig{
		Identity: c.ca.identity(c.t, "0"),
		Driver:   &clusterpb.DriverAddress{Coordinator: c.address, ServerName: "coordinator"},
		Folders:  &clusterpb.HostFolders{RuntimeDir: own, SharedDir: "/"},
		Timeouts: &clusterpb.AgentTimeouts{OrphanGraceMillis: 60_000, IdleMillis: 60_000}, Host: "here",
	}
	if change != nil {
		change(cfg)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	var all sync.WaitGroup
	all.Go(func() { ended <- Run(ctx, cfg, "test", slog.New(slog.NewTextHandler(c.t.Output(), nil))) })
	c.t.Cleanup(func() {
		cancel()
		all.Wait()
		if cfg.Folders.RuntimeDir == own {
			leftovers(c.t, own)
		}
	})
	return ended
}

// leftovers fails the test if a process that an agent started outlives it.
func leftovers(t *testing.T, runtimeDir string) {
	t.Helper()
	mine := func() []string {
		var found []string
		entries, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, path := range entries {
			environ, err := os.ReadFile(path)
			if err == nil && strings.Contains(string(environ), runtimeDir) {
				cmdline, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
				found = append(found, path+" "+strings.ReplaceAll(string(cmdline), "\x00", " "))
			}
		}
		return found
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := mine()
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Errorf("processes are left: %q", left)
			return
		}
	}
}

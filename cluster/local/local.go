package local

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Backend starts agents on this machine.
type Backend struct {
	// Inventory lists this machine's GPUs; nil when it cannot.
	Inventory func(ctx context.Context) ([]*clusterpb.GPU, error)
}

var _ cluster.Backend = (*Backend)(nil)

// Allocate checks that this machine has what is asked for and starts an agent for
// each executor.
func (b *Backend) Allocate(ctx context.Context, req cluster.Request) (cluster.Allocation, error) {
	if err := b.check(ctx, req); err != nil {
		return nil, err
	}
	a, err := newAllocation(req, "")
	if err != nil {
		return nil, err
	}
	for _, e := range req.Executors {
		if err := a.start(e.ID, 0); err != nil {
			return nil, errors.Join(err, a.Release(ctx))
		}
	}
	return a, nil
}

// Recover watches the agents that a dead driver left, and starts those anew that
// have ended meanwhile.
func (b *Backend) Recover(ctx context.Context, req cluster.Request, saved []byte) (cluster.Allocation, error) {
	var old savedAllocation
	if err := json.Unmarshal(saved, &old); err != nil {
		return nil, fmt.Errorf("read what the last driver saved of its agents: %w", err)
	}
	a, err := newAllocation(req, old.Runtime)
	if err != nil {
		return nil, err
	}
	for _, e := range req.Executors {
		left, ok := old.Agents[e.ID]
		if ok && left.Process.Alive() {
			a.adopt(e.ID, left)
			continue
		}
		if err := a.start(e.ID, left.Attempt+1); err != nil {
			return nil, errors.Join(err, a.Release(ctx))
		}
	}
	return a, nil
}

// check refuses at once what this machine cannot give, saying what there is.
func (b *Backend) check(ctx context.Context, req cluster.Request) error {
	var cpus float64
	var memory int64
	var gpus int32
	for _, e := range req.Executors {
		cpus += e.Each.GetCpus()
		memory += e.Each.GetMemoryBytes()
		gpus += e.Each.GetGpus()
	}
	if have := float64(runtime.NumCPU()); cpus > have {
		return fmt.Errorf("%g CPUs asked for, this machine has %g: ask for less, or leave --cpus out for a fair share", cpus, have)
	}
	if have := memTotal(); have > 0 && memory > have {
		return fmt.Errorf("%.1f GB of memory asked for, this machine has %.1f GB", float64(memory)/1e9, float64(have)/1e9)
	}
	if gpus == 0 {
		return nil
	}
	var have []*clusterpb.GPU
	var err error
	if b.Inventory != nil {
		have, err = b.Inventory(ctx)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%d GPUs asked for, this machine's cannot be listed: %w", gpus, err)
	case int(gpus) > len(have):
		return fmt.Errorf("%d GPUs asked for, this machine has %d: tfcluster gpus lists them", gpus, len(have))
	}
	return nil
}

func memTotal() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		var kb int64
		if n, err := fmt.Sscanf(line, "MemTotal: %d kB", &kb); n == 1 && err == nil {
			return kb << 10
		}
	}
	return 0
}

// allocation is the agents of one cluster.
type allocation struct {
	req     cluster.Request
	runtime string // folder for zygote sockets, spools, blobs
	events  chan cluster.Event
	stop    chan struct{} // closed by Release
	watch   sync.WaitGroup

	mu       sync.Mutex
	agents   map[cluster.ExecutorID]agent // guarded by mu
	released bool                         // guarded by mu
}

// agent is an agent process, as it is saved for a later driver.
type agent struct {
	Attempt int             `json:"attempt"`
	Process cluster.Process `json:"process"`
	gone    chan struct{}
}

// savedAllocation is what a later driver needs to know.
type savedAllocation struct {
	Runtime string                       `json:"runtime"`
	Agents  map[cluster.ExecutorID]agent `json:"agents"`
}

// newAllocation makes the agents' folder, or takes up an earlier driver's. A cluster
// that bears the name of one that has just been released has another folder: a zygote
// outlives its last agent by a second.
func newAllocation(req cluster.Request, dir string) (*allocation, error) {
	base, err := cluster.RuntimeDir()
	if err != nil {
		return nil, err
	}
	if dir == "" {
		dir = filepath.Join(base, req.Cluster, "agents-"+strings.ToLower(rand.Text()[:8]))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agents' folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(req.StateDir, "agents"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for agents' logs: %w", err)
	}
	return &allocation{
		req: req, runtime: dir, events: make(chan cluster.Event, 4*len(req.Executors)+16), stop: make(chan struct{}),
		agents: map[cluster.ExecutorID]agent{},
	}, nil
}

// ID names the allocation after the driver's process.
func (a *allocation) ID() string { return fmt.Sprintf("local-%d", os.Getpid()) }

// Events tells of agents that were started and that ended.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

func (a *allocation) logPath(id cluster.ExecutorID) string {
	return filepath.Join(a.req.StateDir, "agents", string(id)+".log")
}

// start runs an agent in a session of its own: it outlives the driver by the orphan
// grace and the idle time, as DESIGN has it.
func (a *allocation) start(id cluster.ExecutorID, attempt int) error {
	config, err := a.config(id, attempt)
	if err != nil {
		return fmt.Errorf("configure executor %s: %w", id, err)
	}
	log, err := os.OpenFile(a.logPath(id), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("open the log of executor %s: %w", id, err)
	}
	defer log.Close()
	cmd := exec.Command(a.program(), "agent")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(config), log, log
	cmd.Dir = "/"
	if wd := a.req.Reserve.GetWorkingDir(); wd != "" {
		cmd.Dir = wd
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	ag, err := a.register(id, attempt, cmd)
	if err != nil {
		return fmt.Errorf("start the agent of executor %s: %w", id, err)
	}
	host, _ := os.Hostname() // "" is shown as it is
	a.tell(cluster.Granted{Executor: id, Attempt: attempt, Host: host, PID: cmd.Process.Pid})
	go func() {
		defer a.watch.Done()
		err := cmd.Wait()
		close(ag.gone)
		a.ended(id, attempt, exitWords(cmd, err))
	}()
	return nil
}

// AgentProgram is the engine option that names another program to start agents with:
// one that runs tfcluster elsewhere, such as in another namespace.
const AgentProgram = "agent-program"

func (a *allocation) program() string {
	if p := a.req.Reserve.GetEngine()[AgentProgram]; p != "" {
		return p
	}
	return a.req.Program
}

// errReleased says that no more agents are started.
var errReleased = errors.New("the allocation is released")

// register starts an agent's process under the lock, so that Release misses none.
func (a *allocation) register(id cluster.ExecutorID, attempt int, cmd *exec.Cmd) (agent, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.released {
		return agent{}, errReleased
	}
	if err := cmd.Start(); err != nil {
		return agent{}, err
	}
	ag := agent{Attempt: attempt, Process: cluster.ProcessOf(cmd.Process.Pid), gone: make(chan struct{})}
	a.agents[id] = ag
	a.watch.Add(1)
	return ag, nil
}

// adopt watches an agent that another driver started.
func (a *allocation) adopt(id cluster.ExecutorID, old agent) {
	old.gone = make(chan struct{})
	a.mu.Lock()
	a.agents[id] = old
	a.mu.Unlock()
	host, _ := os.Hostname() // "" is shown as it is
	a.tell(cluster.Granted{Executor: id, Attempt: old.Attempt, Host: host, PID: old.Process.PID})
	a.watch.Add(1)
	go func() {
		defer a.watch.Done()
		for old.Process.Alive() {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-a.stop:
				if !old.Process.Alive() {
					close(old.gone)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
		}
		close(old.gone)
		a.ended(id, old.Attempt, "its agent ended")
	}()
}

func exitWords(cmd *exec.Cmd, err error) string {
	if cmd.ProcessState == nil {
		return fmt.Sprintf("its agent could not be awaited: %v", err)
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return fmt.Sprintf("its agent was killed by signal %d", ws.Signal())
	}
	return fmt.Sprintf("its agent ended with code %d", cmd.ProcessState.ExitCode())
}

// ended tells of an agent's end, unless it was asked for.
func (a *allocation) ended(id cluster.ExecutorID, attempt int, how string) {
	a.mu.Lock()
	current := a.agents[id].Attempt == attempt && !a.released
	a.mu.Unlock()
	if !current {
		return
	}
	if last := lastLine(a.logPath(id)); last != "" && strings.Contains(how, "code") {
		how += ": " + last
	}
	a.tell(cluster.Lost{Executor: id, Attempt: attempt, Cause: how})
}

func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return lines[len(lines)-1]
}

func (a *allocation) tell(e cluster.Event) {
	select {
	case a.events <- e:
	case <-a.stop:
	}
}

// config adds to an agent's configuration what only this backend knows.
func (a *allocation) config(id cluster.ExecutorID, attempt int) ([]byte, error) {
	raw, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	m["runtime_dir"], m["shared_dir"], m["address"] = a.runtime, a.req.Reserve.GetDir(), "127.0.0.1"
	return json.Marshal(m)
}

// Replace ends what is left of an executor and starts another agent for it.
func (a *allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	a.mu.Lock()
	old, ok := a.agents[id]
	released := a.released
	if ok {
		a.agents[id] = agent{Attempt: old.Attempt + 1} // its end is no loss any more
	}
	a.mu.Unlock()
	if released {
		return errReleased
	}
	if ok && old.gone != nil {
		end(old, 0)
	}
	return a.start(id, old.Attempt+1)
}

// end waits for an agent to end, and kills it when it does not. The zygote sees the
// agent's connection close and kills its tasks.
func end(ag agent, grace time.Duration) {
	select {
	case <-ag.gone:
		return
	case <-time.After(grace):
	}
	if ag.Process.Alive() {
		_ = syscall.Kill(ag.Process.PID, syscall.SIGKILL) // gone meanwhile is as well
	}
	select {
	case <-ag.gone:
	case <-time.After(5 * time.Second): // unkillable: in the kernel
	}
}

// Logs is the agent's own log.
func (a *allocation) Logs(_ context.Context, id cluster.ExecutorID) (io.ReadCloser, error) {
	f, err := os.Open(a.logPath(id))
	if err != nil {
		return nil, fmt.Errorf("open the log of executor %s: %w", id, err)
	}
	return f, nil
}

// Saved lists the agents for a later driver.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := json.Marshal(savedAllocation{a.runtime, a.agents})
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Release ends every agent: they were told already, so most have ended.
func (a *allocation) Release(context.Context) error {
	a.mu.Lock()
	if a.released {
		a.mu.Unlock()
		return nil
	}
	a.released = true
	agents := make([]agent, 0, len(a.agents))
	for _, ag := range a.agents {
		if ag.gone != nil {
			agents = append(agents, ag)
		}
	}
	a.mu.Unlock()
	close(a.stop)
	var wg sync.WaitGroup
	for _, ag := range agents {
		wg.Go(func() { end(ag, 3*time.Second) })
	}
	wg.Wait()
	a.watch.Wait()
	if err := os.RemoveAll(a.runtime); err != nil {
		return fmt.Errorf("remove the agents' folder: %w", err)
	}
	return nil
}

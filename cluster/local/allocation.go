package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// allocation is the agents of one cluster.
type allocation struct {
	req     cluster.Request
	runtime string // folder for zygote sockets, spools, blobs
	events  chan cluster.Event
	stop    chan struct{} // closed by Release
	watch   sync.WaitGroup

	turns    map[cluster.ExecutorID]*sync.Mutex // one Replace of an executor at a time
	mu       sync.Mutex
	agents   map[cluster.ExecutorID]agent // guarded by mu
	released bool                         // guarded by mu
}

// agent is an agent process, as it is saved for a later driver.
type agent struct {
	Attempt int           `json:"attempt"`
	Process state.Process `json:"process"`
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
	if dir == "" {
		sockets, err := state.SocketDir(req.Cluster)
		if err != nil {
			return nil, err
		}
		dir = filepath.Join(sockets, "agents-"+strings.ToLower(rand.Text()[:8]))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the agents' folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(req.StateDir, "agents"), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for agents' logs: %w", err)
	}
	a := &allocation{
		req: req, runtime: dir, events: make(chan cluster.Event, 4*len(req.Executors)+16), stop: make(chan struct{}),
		agents: map[cluster.ExecutorID]agent{}, turns: map[cluster.ExecutorID]*sync.Mutex{},
	}
	for _, e := range req.Executors {
		a.turns[e.ID] = &sync.Mutex{}
	}
	return a, nil
}

// ID names the allocation after the driver's process.
func (a *allocation) ID() string { return fmt.Sprintf("local-%d", os.Getpid()) }

// Events tells of agents that were started and that ended.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

func (a *allocation) logPath(id cluster.ExecutorID) string {
	return filepath.Join(a.req.StateDir, "agents", string(id)+".log")
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
func (a *allocation) config(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
	config, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return nil, err
	}
	config.Folders = &clusterpb.HostFolders{RuntimeDir: a.runtime}
	if dir := a.req.Reserve.GetDir(); rundir.IsURI(dir) {
		// Agents send to the driver, which alone carries files there. The folder for
		// sockets may be a disk in memory.
		config.Folders.WorkDir = filepath.Join(a.req.StateDir, "agents")
	} else {
		config.Folders.SharedDir = dir
	}
	config.Address, config.Threads = "127.0.0.1", int32(threads(a.req.Executors, id, runtime.NumCPU()))
	return config, nil
}

// threads is an executor's share of the cores: what was asked for, else an equal part among
// those that train; 0, for as it comes, for the others, which mostly wait.
func threads(execs []cluster.ExecutorRequest, id cluster.ExecutorID, cores int) int {
	trainers, share, trains := 0, 0, false
	for _, e := range execs {
		one := e.Task.Role == cluster.Chief || e.Task.Role == cluster.Worker
		if one {
			trainers++
		}
		if e.ID == id {
			share, trains = int(math.Ceil(e.Each.GetCpus())), one
		}
	}
	if share > 0 || !trains {
		return share
	}
	return max(1, cores/trainers)
}

// Replace ends what is left of an executor and starts another agent for it.
func (a *allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	turn := a.turns[id]
	if turn == nil {
		return fmt.Errorf("replace executor %s: there is none", id)
	}
	turn.Lock()
	defer turn.Unlock()
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
func (a *allocation) Release(ctx context.Context, _ cluster.FinalStatus, _ string) error {
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
	watched := make(chan struct{})
	go func() { a.watch.Wait(); close(watched) }()
	select {
	case <-watched:
	case <-ctx.Done():
		return fmt.Errorf("an agent does not end although it was killed: %w", ctx.Err())
	}
	if err := os.RemoveAll(a.runtime); err != nil {
		return fmt.Errorf("remove the agents' folder: %w", err)
	}
	return nil
}

package local

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// allocation has the agents of one cluster.
type allocation struct {
	req      cluster.Request
	runtime  string // folder for zygote sockets, spools, blobs
	events   chan cluster.Event
	stop     chan struct{} // closed by Release
	watchers sync.WaitGroup

	replacing map[cluster.ExecutorID]*sync.Mutex // serializes Replace for each executor
	mu        sync.Mutex
	agents    map[cluster.ExecutorID]agent // guarded by mu
	released  bool                         // guarded by mu
}

// agent is an agent's process. It is saved for the next driver.
type agent struct {
	Attempt int           `json:"attempt"`
	Process state.Process `json:"process"`
	done    chan struct{}
}

// savedAllocation is the state for the next driver.
type savedAllocation struct {
	Runtime string                       `json:"runtime"`
	Agents  map[cluster.ExecutorID]agent `json:"agents"`
}

// newAllocation creates the agents' folder, or uses that of an earlier driver. A cluster with the name of
// one that has just been released has a different folder: a zygote outlives its last agent by a second.
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
		agents: map[cluster.ExecutorID]agent{}, replacing: map[cluster.ExecutorID]*sync.Mutex{},
	}
	for _, e := range req.Executors {
		a.replacing[e.ID] = &sync.Mutex{}
	}
	return a, nil
}

// ID returns a name with the driver's process ID.
func (a *allocation) ID() string { return fmt.Sprintf("local-%d", os.Getpid()) }

// Events reports agents that were started and that ended.
func (a *allocation) Events() <-chan cluster.Event { return a.events }

func (a *allocation) logPath(id cluster.ExecutorID) string {
	return filepath.Join(a.req.StateDir, "agents", string(id)+".log")
}

// agentEnded reports the end of an agent, unless it was replaced or released.
func (a *allocation) agentEnded(id cluster.ExecutorID, attempt int, how string) {
	a.mu.Lock()
	current := a.agents[id].Attempt == attempt && !a.released
	a.mu.Unlock()
	if !current {
		return
	}
	lost := cluster.Lost{Executor: id, Attempt: attempt, Cause: how}
	if strings.Contains(how, "code") {
		lost.By = cluster.LostByError
		if last := excerpt.LastLine(a.logPath(id)); last != "" {
			lost.Cause += ": " + last
		}
	}
	a.emit(lost)
}

func (a *allocation) emit(e cluster.Event) {
	select {
	case a.events <- e:
	case <-a.stop:
	}
}

// config returns an agent's configuration with this backend's settings.
func (a *allocation) config(id cluster.ExecutorID, attempt int) (*clusterpb.AgentConfig, error) {
	config, err := a.req.AgentConfig(id, attempt)
	if err != nil {
		return nil, err
	}
	config.Folders = &clusterpb.HostFolders{RuntimeDir: a.runtime}
	if dir := a.req.Reserve.GetDir(); rundir.IsURI(dir) {
		// Only the driver writes to the URI; agents send their files to it. The folder for
		// sockets may be in memory, so files have another one.
		config.Folders.WorkDir = filepath.Join(a.req.StateDir, "agents")
	} else {
		config.Folders.SharedDir = dir
	}
	config.Address, config.Threads = "127.0.0.1", int32(threads(a.req.Executors, id, runtime.NumCPU()))
	return config, nil
}

// threads returns an executor's share of the cores: the requested number, or an equal share for chief and
// workers; 0, which means no limit, for other roles, which mostly wait.
func threads(execs []cluster.ExecutorRequest, id cluster.ExecutorID, cores int) int {
	trainers, share, trains := 0, 0, false
	for _, e := range execs {
		one := cluster.Trains(e.Task.Role)
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

// Replace ends an executor's agent and starts another one.
func (a *allocation) Replace(_ context.Context, id cluster.ExecutorID) error {
	turn := a.replacing[id]
	if turn == nil {
		return errtext.Fault("replace executor %s: there is no such executor", id)
	}
	turn.Lock()
	defer turn.Unlock()
	a.mu.Lock()
	old, ok := a.agents[id]
	released := a.released
	if ok {
		a.agents[id] = agent{Attempt: old.Attempt + 1} // its end is not reported any more
	}
	a.mu.Unlock()
	if released {
		return errReleased
	}
	if ok && old.done != nil {
		endAgent(old, 0)
	}
	return a.start(id, old.Attempt+1)
}

// endAgent waits for the end of an agent, and kills it after the grace period. The zygote notices that the
// agent's connection was closed, and kills its tasks.
func endAgent(ag agent, grace time.Duration) {
	select {
	case <-ag.done:
		return
	case <-time.After(grace):
	}
	if ag.Process.Alive() {
		_ = syscall.Kill(ag.Process.PID, syscall.SIGKILL) // it may have ended meanwhile
	}
	select {
	case <-ag.done:
	case <-time.After(5 * time.Second): // a process in an uninterruptible system call
	}
}

// Logs returns the agent's log.
func (a *allocation) Logs(_ context.Context, id cluster.ExecutorID) (io.ReadCloser, error) {
	return os.Open(a.logPath(id))
}

// Saved returns the agents for the next driver.
func (a *allocation) Saved() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	b, err := json.Marshal(savedAllocation{a.runtime, a.agents})
	if err != nil {
		panic(err) // plain data
	}
	return b
}

// Release ends every agent. The driver has told them to end, so most have.
func (a *allocation) Release(ctx context.Context, _ cluster.FinalStatus, _ string) error {
	a.mu.Lock()
	if a.released {
		a.mu.Unlock()
		return nil
	}
	a.released = true
	agents := make([]agent, 0, len(a.agents))
	for _, ag := range a.agents {
		if ag.done != nil {
			agents = append(agents, ag)
		}
	}
	a.mu.Unlock()
	close(a.stop)
	var wg sync.WaitGroup
	for _, ag := range agents {
		wg.Go(func() { endAgent(ag, 3*time.Second) })
	}
	wg.Wait()
	watched := make(chan struct{})
	go func() { a.watchers.Wait(); close(watched) }()
	select {
	case <-watched:
	case <-ctx.Done():
		return errors.New("the process of an executor was killed but has not ended: it may wait for a disk (ps shows " +
			"tfcluster agent in state D)")
	}
	if err := os.RemoveAll(a.runtime); err != nil {
		return fmt.Errorf("remove the agents' folder: %w", err)
	}
	return nil
}

package slot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

const (
	maxRequest   = 2 << 20                // bytes
	fullPause    = 300 * time.Millisecond // for which a task that finds no free slot occupies its core
	reachTimeout = 4 * time.Second
)

// Request is what the session requests of one task, as JSON on its standard input.
type Request struct {
	Identity    string `json:"identity"`    // of the cluster; its name may not be unique
	Slots       int    `json:"slots"`       // how many agents of one cluster this executor may run; 0: any number
	Coordinator string `json:"coordinator"` // HOST:PORT, dialled before anything is started
	Digest      string `json:"digest"`      // SHA-256 of the driver's program, in hexadecimal
	Python      string `json:"python"`      // the executor's interpreter: a path, or a name in PATH
	Hold        bool   `json:"hold"`        // the task runs as long as the agent, which ends with the task
	GPUs        string `json:"gpus"`        // the GPUs that Spark assigned to the task, for CUDA_VISIBLE_DEVICES
	Assigned    bool   `json:"assigned"`    // GPUs is set

	Executor string          `json:"executor"`
	Attempt  int             `json:"attempt"`
	Config   json.RawMessage `json:"config"` // a clusterpb.AgentConfig, to which the executor's own settings are added
}

// Response is the result, one line of JSON. It contains the error, since Spark would retry a task that fails.
type Response struct {
	Executor string `json:"executor"`
	Attempt  int    `json:"attempt"`
	Host     string `json:"host"`
	PID      int    `json:"pid,omitempty"`   // of the agent
	Full     bool   `json:"full,omitempty"`  // an agent of the cluster runs in each slot: try another executor
	Error    string `json:"error,omitempty"` // one line
}

// Main is `tfcluster spark-slot`: it reads a Request and writes a Response.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var o Request
	if err := json.NewDecoder(io.LimitReader(stdin, maxRequest)).Decode(&o); err != nil {
		return fmt.Errorf("read from Spark's task which agent to start: %w", err)
	}
	response := Response{Executor: o.Executor, Attempt: o.Attempt}
	response.Host, _ = os.Hostname() // "" if it fails
	switch pid, err := o.startAgent(ctx); {
	case errors.Is(err, errFull):
		response.Full = true
		select { // the task occupies its core meanwhile, so that Spark runs the next task elsewhere
		case <-time.After(fullPause):
		case <-ctx.Done():
		}
	case err != nil:
		response.Error = fmt.Sprintf("on %s: %v", response.Host, err)
	default:
		response.PID = pid
	}
	return json.NewEncoder(stdout).Encode(response)
}

// startAgent starts the agent in a free slot and returns its process ID.
func (o *Request) startAgent(ctx context.Context) (pid int, err error) {
	base, err := baseFolder()
	if err != nil {
		return 0, err
	}
	executor, found := findExecutor(os.Getppid())
	if !found && !o.Hold {
		return 0, errNoExecutor
	}
	if !found {
		executor = os.Getppid()
	}
	slot, err := acquireSlot(base, o.Identity, executor, o.Slots)
	if err != nil {
		return 0, err
	}
	defer slot.Close() // the agent has inherited the lock
	program, err := o.program()
	if err != nil {
		return 0, err
	}
	if err := o.checkDriver(ctx); err != nil {
		return 0, err
	}
	folder, err := agentFolder(base)
	if err != nil {
		return 0, err
	}
	var owners []*clusterpb.OwnerProcess
	if o.Hold {
		owners = append(owners, &clusterpb.OwnerProcess{Pid: int32(os.Getppid()), What: "Spark's task"})
	}
	if found {
		owners = append(owners, &clusterpb.OwnerProcess{Pid: int32(executor), What: "the Spark executor"})
	}
	pid, err = o.start(program, folder, owners, slot)
	if err != nil {
		os.RemoveAll(folder)
	}
	return pid, err
}

// errNoExecutor means that the agent could not end with the executor.
var errNoExecutor = fmt.Errorf("the Spark executor was not found: none of the %d processes above the task is a JVM "+
	"(java), so the agent would outlive the executor: have Spark start its Python workers itself, "+
	"without a wrapper that leaves the process tree", maxAncestors)

// errFull means that no slot of this executor is free.
var errFull = errors.New("an agent of the cluster runs in every slot of this executor")

// acquireSlot acquires a slot: a file whose lock the agent inherits. Spark's own cores are free after a
// stage, so that Spark would start two agents on an executor with room for one.
func acquireSlot(base, identity string, executor, slots int) (*os.File, error) {
	for i := 0; slots == 0 || i < slots; i++ {
		name := filepath.Join(base, fmt.Sprintf("slot-%s-%d-%d", identity, executor, i))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("take a place for an agent on this executor: %w", err)
		}
		switch err := lockfile.Try(f, lockfile.Exclusive); {
		case err == nil:
			return f, nil
		case !errors.Is(err, lockfile.ErrHeld):
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		f.Close()
	}
	return nil, errFull
}

// checkDriver dials the driver before anything is started, so that an unreachable driver is reported at
// once.
func (o *Request) checkDriver(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: reachTimeout}).DialContext(ctx, "tcp", o.Coordinator)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		err = op.Err // without the address
	}
	if err != nil {
		return fmt.Errorf("this executor cannot reach the driver at %s: %w; --advertise HOST[:PORTS] names an address that "+
			"it can dial", o.Coordinator, err)
	}
	return conn.Close()
}

// baseFolder returns this user's folder for agents on this machine. Its path must be short, since it
// contains unix sockets.
func baseFolder() (string, error) {
	const longest = 50
	name := "tfcluster-" + strconv.Itoa(os.Getuid())
	base := filepath.Join(os.TempDir(), name)
	if len(base) > longest {
		base = filepath.Join("/tmp", name)
	}
	if err := os.MkdirAll(base, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("make the folder for agents: %w", err)
	}
	info, err := os.Lstat(base)
	if err != nil {
		return "", fmt.Errorf("look at the folder for agents: %w", err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder that belongs to this user: remove it", base)
	}
	return base, nil
}

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

const (
	maxOrder     = 2 << 20                // bytes
	fullPause    = 300 * time.Millisecond // for which a task that finds no slot keeps Spark's own
	reachTimeout = 4 * time.Second
)

// Order is what the side of the session asks of one task, as JSON on its standard input.
type Order struct {
	Identity    string `json:"identity"`    // the cluster's: another may have the same name
	Slots       int    `json:"slots"`       // agents of one cluster for which this executor has room; 0: any number
	Coordinator string `json:"coordinator"` // HOST:PORT, dialled before anything is started
	Digest      string `json:"digest"`      // SHA-256 of the driver's program, in hexadecimal
	Python      string `json:"python"`      // the executor's interpreter: a path, or a name in PATH
	Hold        bool   `json:"hold"`        // the task stays as long as the agent, which ends with it
	GPUs        string `json:"gpus"`        // what Spark gave the task, for CUDA_VISIBLE_DEVICES
	Assigned    bool   `json:"assigned"`    // whether GPUs says anything

	Executor string          `json:"executor"`
	Attempt  int             `json:"attempt"`
	Config   json.RawMessage `json:"config"` // a clusterpb.AgentConfig, to which is added what is known here only
}

// Said is the answer, one line of JSON. What went wrong is in it: a task that fails
// would be tried again by Spark.
type Said struct {
	Executor string `json:"executor"`
	Attempt  int    `json:"attempt"`
	Host     string `json:"host"`
	PID      int    `json:"pid,omitempty"`   // of the agent
	Full     bool   `json:"full,omitempty"`  // an agent of the cluster lives in each slot: try another executor
	Error    string `json:"error,omitempty"` // one line
}

// Main is `tfcluster spark-slot`: it reads an Order and writes a Said.
func Main(ctx context.Context, stdin io.Reader, stdout io.Writer) error {
	var o Order
	if err := json.NewDecoder(io.LimitReader(stdin, maxOrder)).Decode(&o); err != nil {
		return fmt.Errorf("read what is to be started: %w", err)
	}
	said := Said{Executor: o.Executor, Attempt: o.Attempt}
	said.Host, _ = os.Hostname() // "" is shown as it is
	switch pid, err := o.take(ctx); {
	case errors.Is(err, errFull):
		said.Full = true
		pause(ctx) // Spark's slot stays taken meanwhile, so that another task lands elsewhere
	case err != nil:
		said.Error = err.Error()
	default:
		said.PID = pid
	}
	return json.NewEncoder(stdout).Encode(said)
}

func pause(ctx context.Context) {
	select {
	case <-time.After(fullPause):
	case <-ctx.Done():
	}
}

// take starts the agent in a free slot and returns its process.
func (o *Order) take(ctx context.Context) (pid int, err error) {
	base, err := baseFolder()
	if err != nil {
		return 0, err
	}
	executor, found := executorAbove(os.Getppid())
	if !found {
		executor = os.Getppid()
	}
	slot, err := claim(base, o.Identity, executor, o.Slots)
	if err != nil {
		return 0, err
	}
	defer slot.Close() // the agent has inherited it
	program, err := o.program()
	if err != nil {
		return 0, err
	}
	if err := o.reach(ctx); err != nil {
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

// errFull says that no slot of this executor is free.
var errFull = errors.New("an agent of the cluster lives in every slot of this executor")

// claim takes a slot: a file whose lock the agent inherits. Spark's own slots are free
// again once a stage is over, so that it would put two agents where one has room.
func claim(base, identity string, executor, slots int) (*os.File, error) {
	for i := 0; slots == 0 || i < slots; i++ {
		name := filepath.Join(base, fmt.Sprintf("slot-%s-%d-%d", identity, executor, i))
		f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("take a slot: %w", err)
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

// reach dials the driver before anything is started: that it cannot be reached is said
// at once, naming both sides.
func (o *Order) reach(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: reachTimeout}).DialContext(ctx, "tcp", o.Coordinator)
	if err != nil {
		host, _ := os.Hostname() // "" is shown as it is
		return fmt.Errorf("the executor on %s cannot reach the driver at %s: %s; --advertise HOST[:PORTS] names an address that it can dial", host, o.Coordinator, dialWords(err))
	}
	return conn.Close()
}

// dialWords is why a dial failed, without the address: it is named already.
func dialWords(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}

// baseFolder is this user's folder for agents on this machine. Its path must be short:
// sockets are in it.
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
	var st unix.Stat_t
	if err := unix.Lstat(base, &st); err != nil || !info.IsDir() || int(st.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s is not a folder of this user's: remove it", base)
	}
	return base, nil
}

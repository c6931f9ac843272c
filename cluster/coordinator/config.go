package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/logstore"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// Config is what a Coordinator is made of.
type Config struct {
	Name    string
	Version string
	Request *clusterpb.ReserveRequest
	// Address is where agents dial, HOST:PORT as advertised.
	Address   string
	Authority *auth.Authority
	// StateDir is the cluster's own folder on this host.
	StateDir string
	Directory
	// Here is whether the executors are on the notebook's machine, and see its folders.
	Here      bool
	Backend   cluster.Backend
	Recovered Recovered
	// Begin is the run that the cluster was made for, where no client is to begin it.
	Begin     *clusterpb.StartRequest
	Program   string // the binary that agents run
	Artifacts Artifacts
	// OrphanGrace is how long tasks outlive their driver.
	OrphanGrace time.Duration
	Timing      Timing
	Quota       logstore.Quota
	TensorBoard TensorBoards
	Hooks       Hooks
	Log         *slog.Logger
}

// Directory is where the cluster's runs lie, and what it held before.
type Directory struct {
	// Dir holds the cluster's runs.
	Dir string
	// Spool keeps the runs where Dir is a URI; nil where Dir is a folder of this host.
	Spool Spool
	// DefaultFS is what a program's absolute paths are relative to; file:// if empty.
	DefaultFS string
	// Hadoop is what agents are told of HDFS; nil: nothing.
	Hadoop *clusterpb.HadoopClient
	// LastRun is the number of the last run an earlier driver began, Earlier of the last
	// that the directory held before this cluster.
	LastRun, Earlier int32
}

// Recovered is what an earlier driver of the cluster left; empty for a new cluster.
type Recovered struct {
	// Saved is what its allocation saved; nil for a new one.
	Saved []byte
	// Allocation is what the engine called it; "" if nothing.
	Allocation string
	// Start is what SaveStart was given last, of the run StartRun; nil: nothing.
	Start    *clusterpb.StartRequest
	StartRun int32
	// Detached: the active run was to go on without clients.
	Detached bool
	// Address is where agents dialed it; "" where they need not be told of another.
	Address string
}

// Artifacts are the contents of --files and --venv where this host is not the one on which
// they were given.
type Artifacts struct {
	// Source has the contents; nil: they are read here.
	Source ship.Source
	// Environment is what Source has of --venv.
	Environment *clusterpb.Environment
}

// Timing is how often things happen.
type Timing struct {
	Heartbeat time.Duration // between two of an agent's
	Silence   time.Duration // until a silent agent is lost
	// SaveEvery is the least between two calls of SaveState for what the engine has told:
	// what it grants comes in as many events. Runs are saved as they begin.
	SaveEvery time.Duration
}

// Hooks are what the coordinator calls to keep what must outlive it.
type Hooks struct {
	// SaveState is called when what a later driver must know has changed.
	SaveState func(allocation string, saved []byte, lastRun int32, detached bool) error
	// SaveStart is called with the start of a run that is to go on where this driver dies; nil: no
	// driver takes over by itself.
	SaveStart func(run int32, req *clusterpb.StartRequest)
	// Kept waits until what SaveState was given is where a later driver finds it; nil: it is
	// when SaveState returns.
	Kept func(context.Context) error
	// Record is called when what a ClusterRecord holds has changed, and once at the end, when
	// the cluster is over, with the reason; nil: nobody keeps one here.
	Record func(leases []cluster.Application, places []byte, lastRun int32, over bool, why string) error
}

// TensorBoards serves a cluster's TensorBoard. The driver injects it.
type TensorBoards interface {
	Open(ctx context.Context, logdir string) (*clusterpb.TensorBoardReply, error)
	Close(ctx context.Context) error
}

// folder is where the runs lie on this host.
func (d *Directory) folder() string {
	if d.Spool != nil {
		return d.Spool.Folder()
	}
	return d.Dir
}

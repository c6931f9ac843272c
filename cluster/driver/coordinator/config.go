package coordinator

import (
	"context"
	"log/slog"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results/logstore"
	"github.com/tfcluster/tfcluster/cluster/ship"
)

// Config is the configuration of a Coordinator.
type Config struct {
	Name    string
	Version string
	Request *clusterpb.ReserveRequest
	// Address is the driver's HOST:PORT for agents, as advertised.
	Address   string
	Authority *auth.Authority
	// StateDir is the cluster's own folder on this host.
	StateDir string
	Directory
	// OnThisHost says that the executors are on the notebook's machine and see its folders.
	OnThisHost bool
	Backend    cluster.Backend
	Recovered  Recovered
	// Begin is the run that the coordinator starts itself; nil: clients start runs.
	Begin     *clusterpb.StartRequest
	Program   string // the binary that agents run
	Artifacts Artifacts
	// OrphanGrace is how long tasks run on without a driver; 0: a minute, or longer with a long Timing.Silence.
	OrphanGrace time.Duration
	Timing      Timing
	Quota       logstore.Quota
	TensorBoard TensorBoards
	Hooks       Hooks
	Log         *slog.Logger
}

// Directory is the folder of the cluster's runs.
type Directory struct {
	// Dir holds the cluster's runs.
	Dir string
	// Spool writes the runs to Dir if that is a URI; nil if Dir is a folder of this host.
	Spool Spool
	// DefaultFS is the file system of a program's absolute paths; file:// if empty.
	DefaultFS string
	// Hadoop is the HDFS configuration for agents; nil: none.
	Hadoop *clusterpb.HadoopClient
	// LastRun is the number of the last run in the directory, Earlier of the last one before
	// this cluster.
	LastRun, Earlier int32
}

// Recovered is the state that an earlier driver of the cluster saved; empty for a new cluster.
type Recovered struct {
	// Saved is its allocation's state; nil for a new cluster.
	Saved []byte
	// Allocation is its engine's ID; "" if it had none.
	Allocation string
	// Start is the last argument of SaveStart, for the run StartRun; nil: none.
	Start    *clusterpb.StartRequest
	StartRun int32
	// Detached says that the active run was to go on without clients.
	Detached bool
	// Address is the earlier driver's address; "" if agents find the new one without help.
	Address string
}

// Artifacts are the contents of --files and --venv if this is not the submitting host.
type Artifacts struct {
	// Source has the contents; nil: they are read from this host.
	Source ship.Source
	// Environment describes the environment of --venv in Source.
	Environment *clusterpb.Environment
}

// Timing has the coordinator's intervals; zero values have defaults.
type Timing struct {
	Heartbeat time.Duration // between two heartbeats of an agent
	Silence   time.Duration // until a silent agent counts as lost
	// SaveEvery is the minimum time between two calls of SaveState for engine events. The start
	// of a run is saved at once.
	SaveEvery time.Duration
}

// Hooks are called to store what must outlive the coordinator.
type Hooks struct {
	// SaveState is called when the state for a later driver has changed.
	SaveState func(allocation string, saved []byte, lastRun int32, detached bool) error
	// SaveStart is called with the start of a run that a later driver restarts if this one
	// dies; nil: no driver takes over automatically.
	SaveStart func(run int32, req *clusterpb.StartRequest)
	// Flush waits until the state of the last SaveState is durable; nil: it is when SaveState
	// returns.
	Flush func(context.Context) error
	// Record is called when the contents of the ClusterRecord have changed, and at the end with
	// over and the reason; nil: none is written.
	Record func(leases []cluster.Application, places []byte, lastRun int32, over bool, why string) error
	// EndReason returns why the engine ends the driver, by a signal, as far as that is known when ctx ends; nil: a signal
	// is a request to release the cluster.
	EndReason func(ctx context.Context) string
}

// TensorBoards runs the cluster's TensorBoard, and its proxy. Main provides it.
type TensorBoards interface {
	Open(ctx context.Context, logdir string) (*clusterpb.TensorBoardReply, error)
	// LinesAddress starts the proxy only, which serves the tasks' lines too.
	LinesAddress(ctx context.Context) (*clusterpb.LinesAddressReply, error)
	// Stop ends TensorBoard; the tasks' lines are still served.
	Stop(ctx context.Context) error
	Close(ctx context.Context) error
}

// folder returns the folder of the runs on this host.
func (d *Directory) folder() string {
	if d.Spool != nil {
		return d.Spool.Folder()
	}
	return d.Dir
}

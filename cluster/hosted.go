package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// DriverLauncher is a Backend whose engine can run a cluster's driver itself, so that the cluster
// needs neither the machine of whoever reserved it, nor roads to it.
type DriverLauncher interface {
	// Submit asks the engine to run a driver for the request. input, which is secret,
	// is what that driver reads. An error says in one line what the engine cannot give.
	Submit(ctx context.Context, req Request, input []byte) (RemoteDriver, error)
	// Upload puts a content of --files or --venv where the driver's OpenArtifact has it, unless it
	// is there.
	Upload(ctx context.Context, r *clusterpb.ReserveRequest, content *clusterpb.Blob, from io.ReadSeeker) error
	// Find takes up what Saved held of one that was submitted.
	Find(r *clusterpb.ReserveRequest, saved []byte) (RemoteDriver, error)
}

// RemoteDriver is a driver that an engine runs, as whoever submitted it sees it. Its methods
// may be called from any goroutine.
type RemoteDriver interface {
	// ID is the engine's name for it: application_….
	ID() string
	// Saved is what Find needs.
	Saved() []byte
	// Endpoint is the HOST:PORT at which the driver answers now; "" while there is none,
	// for which waits is the engine's reason, if it tells one. It fails with ErrEnded
	// once the engine has ended it for good.
	Endpoint(ctx context.Context) (address, waits string, err error)
	// Kill ends the driver and its executors by force, and removes what is left of them.
	// One that has ended is as good.
	Kill(ctx context.Context) error
	Close() error
}

// DriverHost is what a driver that an engine runs has of its engine. The driver calls
// Listening before its backend is asked for executors.
type DriverHost interface {
	// Host is the name of this machine for those who dial the driver.
	Host() string
	// Listening tells the engine where clients and agents dial, and the URL of a page
	// that shows the cluster.
	Listening(address, page string)
	// Authorize lets only those see that page whom the engine has let.
	Authorize(page http.Handler) http.Handler
	// LogPage is the URL of the engine's own page for what an executor's container
	// wrote; "": there is none.
	LogPage(id ExecutorID) string
	// OpenArtifact opens a content that DriverLauncher's Upload was given, by its SHA-256 in hex.
	OpenArtifact(ctx context.Context, digest string) (io.ReadCloser, error)
	// SaveState keeps what the next driver, which the engine starts when this one dies, has
	// to know. It does not wait.
	SaveState(state []byte)
	// Flush waits until what SaveState was given before is kept.
	Flush(ctx context.Context) error
}

// ErrEnded says that an engine has ended a driver that it ran.
var ErrEnded = errors.New("the engine has ended the cluster")

// EngineManaged is the key of a request that wants its driver run by the engine.
const EngineManaged = "managed"

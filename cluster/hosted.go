package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
)

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
	// OpenArtifact opens a content that DriverLauncher's Upload was given, by its SHA-256
	// in hex.
	OpenArtifact(ctx context.Context, digest string) (io.ReadCloser, error)
	StateStore
	PageHost
}

// StateStore keeps what the next driver has to know, which the engine starts when this one
// dies.
type StateStore interface {
	// SaveState keeps it in the place of what was kept before. It does not wait.
	SaveState(state []byte)
	// SaveStart keeps how the active run was started, which may be large, beside the state. It
	// does not wait.
	SaveStart(start []byte)
	// LoadStart returns what an earlier driver gave to SaveStart; nil: nothing.
	LoadStart(ctx context.Context) ([]byte, error)
	// Flush waits until what SaveState and SaveStart were given before is kept.
	Flush(ctx context.Context) error
}

// PageHost is what the page that shows a cluster has of the engine.
type PageHost interface {
	// Authorize lets only those see the page whom the engine has let.
	Authorize(page http.Handler) http.Handler
	// LogPage is the URL of the engine's own page for what an executor's container
	// wrote; "": there is none.
	LogPage(id ExecutorID) string
}

// ErrEnded says that an engine has ended a driver that it ran.
var ErrEnded = errors.New("the engine has ended the cluster")

// EngineManaged is the key of a request that wants its driver run by the engine.
const EngineManaged = "managed"

// EngineConf is the prefix of the keys of an engine's own settings, whose values may be secrets.
const EngineConf = "conf."

// Keys of a request to an engine of Hadoop's: the folder of the configuration, and the user.
const (
	EngineConfDir = "conf-dir"
	EngineUser    = "user"
)

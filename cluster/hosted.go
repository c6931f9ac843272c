package cluster

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// RemoteDriver is a driver that an engine runs, seen from the client that submitted it. All
// methods may be called from any goroutine.
type RemoteDriver interface {
	// ID returns the engine's identifier: application_….
	ID() string
	// Saved returns the bytes for Find.
	Saved() []byte
	// Endpoint returns the HOST:PORT of the running driver. While there is none, address is ""
	// and waits is the engine's reason, if known. With an address, waits says when the engine
	// replaces a driver that does not answer there. After the engine has ended the
	// application, the error is ErrEnded.
	Endpoint(ctx context.Context) (address, waits string, err error)
	// Kill ends the driver and its executors by force, and removes their files. It succeeds
	// if they have ended already.
	Kill(ctx context.Context) error
	Close() error
}

// DriverHost is the engine, seen from a driver that it runs. The driver calls Listening
// before it asks the backend for executors.
type DriverHost interface {
	// Host returns the name of this machine to which clients and agents connect.
	Host() string
	// Listening publishes the address to which clients and agents connect, and the URL of a
	// page that shows the cluster.
	Listening(address, page string)
	// OpenArtifact opens a file that DriverLauncher's Upload stored, by its SHA-256 in hex.
	OpenArtifact(ctx context.Context, digest string) (io.ReadCloser, error)
	StateStore
	PageHost
}

// EndReporter is a DriverHost that knows why the engine ends the driver, by a signal.
type EndReporter interface {
	// EndReason returns it in one line, as far as it is known when ctx ends: the engine waits for a moment only.
	EndReason(ctx context.Context) string
}

// StateStore stores the state for the next driver, which the engine starts if this one dies.
type StateStore interface {
	// SaveState replaces the stored state. It does not wait for the write.
	SaveState(state []byte)
	// SaveStart replaces the stored start request of the active run, which may be large. It
	// does not wait for the write.
	SaveStart(start []byte)
	// LoadStart returns the start request that an earlier driver stored; nil: there is none.
	LoadStart(ctx context.Context) ([]byte, error)
	// Flush waits until the writes of earlier SaveState and SaveStart calls have finished.
	Flush(ctx context.Context) error
}

// PageHost is the engine, seen from the web page of a cluster.
type PageHost interface {
	// Authorize wraps the page so that only users whom the engine has authorized can see it.
	Authorize(page http.Handler) http.Handler
	// LogPage returns the URL of the engine's page with the logs of an executor's container;
	// "": there is none.
	LogPage(id ExecutorID) string
}

// ErrEnded means that an engine has ended a driver that it ran.
var ErrEnded = errors.New("the cluster was ended by Spark or YARN")

// EngineManaged is the key of a request whose driver the engine is to run (--managed).
const EngineManaged = "managed"

// EngineConf is the prefix of the keys of an engine's own settings, whose values may be secrets.
const EngineConf = "conf."

// Keys of a request to a Hadoop engine: the folder of the configuration, and the user.
const (
	EngineConfDir = "conf-dir"
	EngineUser    = "user"
)

package cluster

import (
	"context"
	"regexp"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// LogKeeper is an Allocation whose engine keeps what the executors' agents write, also of
// those that are gone.
type LogKeeper interface {
	// ContainerLogs calls emit in turn with lines; heading says whose they are and is ""
	// where they go on. A heading without lines is a remark. It ends with emit's error.
	ContainerLogs(ctx context.Context, q LogQuery, emit func(heading string, lines []*clusterpb.Line) error) error
	// LogLocations is what whoever reads them later must know; JSON without a secret.
	LogLocations() []byte
}

// LogQuery picks of what an engine keeps.
type LogQuery struct {
	Allocation string         // the engine's name for it: application_…; "": all that the cluster has been
	Task       string         // "" = all; worker:1, a role, or the engine's name of a container
	Last       int            // lines of each log; 0 = all
	Grep       *regexp.Regexp // nil: every line
}

// ApplicationHistory is an Allocation that its engine knows by a name for people, and that may be
// several of those one after the other.
type ApplicationHistory interface {
	// Applications are those, oldest first.
	Applications() []Application
}

// Application is an allocation as its engine calls it: an application of YARN's.
type Application struct {
	ID    string    `json:"id"`
	State string    `json:"state"` // running, or how it ended
	Since time.Time `json:"since"`
}

package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
)

// HistoryReader reads the records and results of this user's clusters on this host, also of
// ended ones.
type HistoryReader interface {
	// Clusters returns the records of all clusters on this host, oldest first: ended, dead and
	// live ones.
	Clusters() ([]*state.ClusterRecord, error)
	// InUse returns a function that reports whether a cluster uses a directory.
	InUse() (func(dir string) bool, error)
	// FindByApplication returns the name of the live cluster with an application ID of its
	// engine; "" if there is none.
	FindByApplication(lease string) string
	// Folder opens the cluster's directory.
	Folder(p *state.ClusterRecord) (results.Folder, error)
	// Storage opens the file system of the cluster's directory.
	Storage(p *state.ClusterRecord) (results.Storage, io.Closer, error)
}

// Namer is a HistoryReader that counts the clusters that are reserved without a name.
type Namer interface {
	// NextNumber returns the next number for a cluster of a backend. No cluster had it before.
	NextNumber(ctx context.Context, backend string) (int, error)
}

// PastCluster returns the ended cluster that a command means. err is the error of the search for a live one. The
// result is nil if err is the better answer.
func (s *State) PastCluster(c *command.Command, err error) *state.ClusterRecord {
	if _, usage := errors.AsType[*command.UsageError](err); usage {
		return nil
	}
	name := cmp.Or(c.Text("cluster"), s.LastName())
	// A name may also mean a cluster whose driver does not answer.
	return s.newestPast(func(p *state.ClusterRecord) bool {
		return name == "" && !p.Lives && (p.LastRun > p.Earlier || len(p.Applications) > 0) || p.Name == name ||
			p.HasApplication(name)
	})
}

// newestPast returns the newest cluster of the history that matches; nil if there is none, or
// the history cannot be read.
func (s *State) newestPast(matches func(*state.ClusterRecord) bool) *state.ClusterRecord {
	if s.Options.History == nil {
		return nil
	}
	pasts, err := s.Options.History.Clusters()
	if err != nil {
		return nil
	}
	for _, p := range slices.Backward(pasts) {
		if matches(p) {
			return p
		}
	}
	return nil
}

// lastOwn returns the last cluster of this notebook if it ended by itself: the user has not read the reason yet.
// Otherwise it returns nil.
func (s *State) lastOwn() *state.ClusterRecord {
	if s.Options.Owner == "" {
		return nil
	}
	p := s.newestPast(func(p *state.ClusterRecord) bool { return p.Owner == s.Options.Owner })
	if p == nil || p.Until.IsZero() || p.Why == "" {
		return nil
	}
	return p
}

// ClusterOfApplication returns the cluster with an application ID of its engine; nil if there
// is none.
func (s *State) ClusterOfApplication(lease string) *state.ClusterRecord {
	return s.newestPast(func(p *state.ClusterRecord) bool {
		return p.HasApplication(lease)
	})
}

// mostNames is the maximum number of ended clusters that are offered for completion.
const mostNames = 20

// PastClusterNames returns the names of the newest ended clusters, for completion.
func (s *State) PastClusterNames() []string {
	var names []string
	s.newestPast(func(p *state.ClusterRecord) bool {
		if !p.Lives && !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
		return len(names) == mostNames
	})
	return names
}

// IsOver reports whether only the cluster's results are left. err is an error of Explain.
func IsOver(err error) bool {
	fate := FateOf(err)
	return fate == Over || fate == Dead || fate == Unknown
}

// PastLine returns a line about an ended cluster, shown above its results.
func (s *State) PastLine(p *state.ClusterRecord) string {
	line := "cluster " + p.Name
	switch {
	case p.Lives:
		return line + ": it is being released"
	case p.Until.IsZero():
		return line + ": its driver died; " + s.Say("attach "+p.Name) + " starts another one"
	default:
		line += ": released " + p.Until.Local().Format(time.DateTime)
		if p.Why != "" {
			line += " (" + p.Why + ")"
		}
	}
	return line
}

// Results opens the runs of an ended cluster. The caller closes it.
func (s *State) Results(p *state.ClusterRecord) (*results.Results, error) {
	f, err := s.Options.History.Folder(p)
	if err != nil {
		return nil, fmt.Errorf("open what cluster %s left in %s: %w", p.Name, p.Dir, err)
	}
	return &results.Results{Dir: p.Dir, Folder: f, Of: p}, nil
}

// RequestOf returns a request with the engine of an ended cluster.
func RequestOf(p *state.ClusterRecord) *clusterpb.ReserveRequest {
	return &clusterpb.ReserveRequest{Backend: p.Backend, Engine: p.Engine}
}

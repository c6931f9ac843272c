package session

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
)

// Archive is what is left of clusters that are over.
type Archive interface {
	// Pasts are those that were on this host, whose driver died, or that live, oldest first.
	Pasts() ([]*state.ClusterRecord, error)
	// InUse returns a function that reports whether a cluster uses a directory.
	InUse() (func(dir string) bool, error)
	// LivesAs is the live cluster that an engine knows by a name; "" if there is none.
	LivesAs(lease string) string
	// Folder opens the cluster's directory.
	Folder(p *state.ClusterRecord) (results.Folder, error)
	// Storage opens what the cluster's directory is on.
	Storage(p *state.ClusterRecord) (results.Storage, io.Closer, error)
}

// Past is the cluster that a command means though it is over: err is why it was not found
// among the live ones. nil where that is a better answer.
func (s *State) Past(c *command.Command, err error) *state.ClusterRecord {
	var usage *command.UsageError
	if s.Options.Archive == nil || errors.As(err, &usage) {
		return nil
	}
	pasts, lerr := s.Options.Archive.Pasts()
	if lerr != nil {
		return nil // the error to tell is the one there is
	}
	name := c.Text("cluster")
	if name == "" {
		name = s.LastName()
	}
	for _, p := range slices.Backward(pasts) {
		if name == "" && !p.Lives && (p.LastRun > p.Earlier || len(p.Applications) > 0) || p.Name == name { // by its name also one that does not answer any more
			return p
		}
	}
	return nil
}

// lastOwn returns the last cluster of this notebook where that ended by itself: nobody has read why.
// nil where there is none.
func (s *State) lastOwn() *state.ClusterRecord {
	if s.Options.Archive == nil || s.Options.Owner == "" {
		return nil
	}
	pasts, err := s.Options.Archive.Pasts()
	if err != nil {
		return nil
	}
	for _, p := range slices.Backward(pasts) {
		if p.Owner == s.Options.Owner {
			if p.Until.IsZero() || p.Why == "" {
				return nil
			}
			return p
		}
	}
	return nil
}

// PastOf is the cluster that an engine knew by a name; nil if there was none.
func (s *State) PastOf(lease string) *state.ClusterRecord {
	if s.Options.Archive == nil {
		return nil
	}
	pasts, err := s.Options.Archive.Pasts()
	if err != nil {
		return nil
	}
	for _, p := range slices.Backward(pasts) {
		if slices.ContainsFunc(p.Applications, func(l cluster.Application) bool { return l.ID == lease }) {
			return p
		}
	}
	return nil
}

// mostNames is how many clusters that are over are offered.
const mostNames = 20

// PastNames are the newest clusters that are over.
func (s *State) PastNames() []string {
	if s.Options.Archive == nil {
		return nil
	}
	pasts, err := s.Options.Archive.Pasts()
	if err != nil {
		return nil
	}
	var names []string
	for _, p := range slices.Backward(pasts) {
		if !p.Lives && !slices.Contains(names, p.Name) && len(names) < mostNames {
			names = append(names, p.Name)
		}
	}
	return names
}

// IsOver returns whether an error of Explain says that what the cluster left is all there is.
func IsOver(err error) bool {
	fate := FateOf(err)
	return fate == Over || fate == Dead || fate == Unknown
}

// PastLine says of which cluster what follows is.
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

// Results are a past cluster's own runs, to be closed by whoever asked.
func (s *State) Results(p *state.ClusterRecord) (*results.Results, error) {
	f, err := s.Options.Archive.Folder(p)
	if err != nil {
		return nil, fmt.Errorf("open what cluster %s left in %s: %w", p.Name, p.Dir, err)
	}
	return &results.Results{Dir: p.Dir, Folder: f, Of: p}, nil
}

// RequestOf says which engine a past cluster was on.
func RequestOf(p *state.ClusterRecord) *clusterpb.ReserveRequest {
	return &clusterpb.ReserveRequest{Backend: p.Backend, Engine: p.Engine}
}

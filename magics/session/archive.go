package session

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/result"
)

// Archive is what is left of clusters that are over.
type Archive interface {
	// Pasts are those that were on this host, whose driver died, or that live, oldest first.
	Pasts() ([]*state.ClusterRecord, error)
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
		if name == "" && !p.Lives || p.Name == name { // by its name also one that does not answer any more
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

// IsOver tells a driver that is gone from one that refuses.
func IsOver(err error) bool {
	var broken *result.ClusterError
	return status.Code(err) == codes.Unavailable || errors.As(err, &broken) && broken.Code == 69
}

// PastLine says of which cluster what follows is.
func (s *State) PastLine(p *state.ClusterRecord) string {
	line := "cluster " + p.Name
	switch {
	case p.Lives:
		return line + ": it is being released"
	case p.Until.IsZero():
		return line + ": its driver died; " + s.Say("attach "+p.Name) + " takes it up again"
	default:
		line += ": released " + p.Until.Local().Format("2006-01-02 15:04:05")
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

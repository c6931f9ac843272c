package session

import "github.com/tfcluster/tfcluster/magics/command"

// Submission is the session's data about a cluster's last start.
type Submission struct {
	Show    string
	Command *command.Command // to read its program again for --again; nil for a start from Python
}

// Remember stores a cluster's last start, for wait and --again.
func (s *State) Remember(cluster string, c *command.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &Submission{Show: c.Text("show")}
	switch last := s.submitted[cluster]; {
	case c.Has("again") && last != nil:
		sub.Command = last.Command
	case c.Typed:
		sub.Command = c
	}
	s.submitted[cluster] = sub
}

// Submission returns the data about a cluster's last start; nil if there is none.
func (s *State) Submission(cluster string) *Submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submitted[cluster]
}

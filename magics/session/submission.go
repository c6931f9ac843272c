package session

import "github.com/tfcluster/tfcluster/magics/command"

// Submission is what the session knows of a cluster's last start beyond its run.
type Submission struct {
	Show    string
	Command *command.Command // to collect its program anew for --again; nil for a start from Python
}

// Remember keeps what the run's waiters are to show, and what --again means.
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

// Submission is what is known of a cluster's last start; nil if nothing is.
func (s *State) Submission(cluster string) *Submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submitted[cluster]
}

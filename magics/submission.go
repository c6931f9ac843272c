package magics

// submission is what the session knows of a cluster's last start beyond its run.
type submission struct {
	show    string
	command *Command // to collect its program anew for --again; nil for a start from Python
}

// remember keeps what the run's waiters are to show, and what --again means.
func (s *State) remember(cluster string, c *Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := &submission{show: c.Text("show")}
	switch last := s.submitted[cluster]; {
	case c.Has("again") && last != nil:
		sub.command = last.command
	case c.typed:
		sub.command = c
	}
	s.submitted[cluster] = sub
}

func (s *State) submission(cluster string) *submission {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.submitted[cluster]
}

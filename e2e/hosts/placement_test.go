package hosts

// placement: tasks are spread over the hosts while there is room, and share one with --pack.
func (s *site) placement() {
	s.t.Helper()
	for _, tt := range []struct {
		option string
		shared bool
	}{{"--feed-memory=64m", false}, {"--pack", true}} {
		j := s.run(placed, "--framework", "none", tt.option)
		code := j.ends()
		if code != 0 {
			s.t.Fatalf("exit code %d:\n%s", code, j)
		}
		if first, second := j.host("worker:0"), j.host("worker:1"); (first == second) != tt.shared {
			s.t.Errorf("with %s the tasks are on %s and %s", tt.option, first, second)
		}
	}
}

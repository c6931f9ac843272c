package hosts

// placements is how often tasks are placed at most: an engine may give a task another host than the preferred one. With
// two nodes YARN does so after three heartbeats of the other node (RegularContainerAllocator caps its delay by their
// number), and with them late on a busy machine.
const placements = 4

// placement: tasks are spread over the hosts while there is room, and share one with --pack.
func (s *site) placement() {
	s.t.Helper()
	for _, tt := range []struct {
		option string
		shared bool
	}{{"--feed-memory=64m", false}, {"--pack", true}} {
		var first, second string
		for try := 0; try == 0 || (first == second) != tt.shared && try < placements; try++ {
			j := s.run(placed, "--framework", "none", tt.option)
			if code := j.ends(); code != 0 {
				s.t.Fatalf("exit code %d:\n%s", code, j)
			}
			first, second = j.host("worker:0"), j.host("worker:1")
			s.t.Logf("with %s the tasks are on %s and %s", tt.option, first, second)
		}
		if (first == second) != tt.shared {
			s.t.Errorf("with %s the tasks are on %s and %s", tt.option, first, second)
		}
	}
}

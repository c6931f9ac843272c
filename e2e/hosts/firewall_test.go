package hosts

import (
	"strings"
)

// driverPorts are the ports that the notebook's host opens for executors in the test of its firewall.
const driverPorts = "7200-7203"

// firewall: the ports that docs/spark.md and docs/yarn.md list are enough, and where the driver's are closed, the
// reservation says so, with both ends and the option to use.
func (s *site) firewall() {
	s.t.Helper()
	defer s.NoFirewall(notebook)
	options := append([]string{"--framework", "none"}, s.fixed...)
	s.Firewall(notebook, strings.TrimPrefix(s.ports+","+driverPorts, ","))
	j := s.run(placed, append(options, "--advertise", s.Address(notebook)+":"+driverPorts)...)
	if code := j.ends(); code != 0 || strings.Count(j.String(), " is on ") != 2 {
		s.t.Errorf("exit code %d:\n%s", code, j)
	}
	s.NoFirewall(notebook)
	s.Firewall(notebook, s.ports)
	j = s.run(placed, append(options, "--reserve-timeout", "45s")...)
	code := j.ends()
	s.t.Log(j)
	if end := "driver at " + s.Address(notebook) + ":"; code == 0 || !strings.Contains(j.String(), end) ||
		!strings.Contains(j.String(), "--advertise HOST") {
		s.t.Errorf("exit code %d:\n%s", code, j)
	}
	s.checkLeft()
}

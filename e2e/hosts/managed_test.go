package hosts

import (
	"strings"
	"time"
)

// managed: when the host of a managed ApplicationMaster vanishes, the cell says what it waits for and until when, and
// the run goes on if the host returns before.
func (s *site) managed() {
	s.t.Helper()
	if s.ports != "" {
		s.t.Skip("missing: a driver that Spark runs")
	}
	j := s.run(placed+`
print("at work", flush=True)
time.sleep(90)
print("done", flush=True)
`, "--framework", "none", "--managed")
	j.sees("[worker:0] at work")
	j.sees("[worker:1] at work")
	host := ""
	for _, name := range workers {
		if _, err := s.Run(name, "pgrep", "-f", "tfcluster appmaster"); err == nil {
			host = name
		}
	}
	began := time.Now()
	s.down(host)
	j.sees("down or cut off; YARN gives an ApplicationMaster up after")
	s.t.Logf("after %.1f s", time.Since(began).Seconds())
	s.Up(host)
	code := j.ends()
	s.t.Log(j)
	if code != 0 || strings.Count(j.String(), "] done") != 2 {
		s.t.Errorf("exit code %d", code)
	}
	s.checkLeft()
}

package hosts

import (
	"fmt"
	"strings"
	"time"
)

// names: a cluster needs no option where the notebook's host calls itself 127.0.1.1, as Debian does, and the workers do
// not know its name, nor where hosts have a second network.
func (s *site) names() {
	s.t.Helper()
	known := "127.0.0.1 localhost\n"
	for _, name := range append([]string{master}, workers...) {
		known += fmt.Sprintf("%s %s\n", s.Address(name), name)
	}
	s.Names(notebook, "127.0.1.1 "+notebook+"\n"+known)
	defer func() {
		for _, name := range append([]string{notebook}, workers...) {
			s.Names(name, known+s.Address(notebook)+" "+notebook+"\n")
		}
	}()
	for _, worker := range workers {
		s.Names(worker, known)
	}
	for i, name := range append([]string{notebook}, workers...) {
		s.Interface(name, "eth1", fmt.Sprintf("10.78.0.%d/24", i+1))
	}
	began := time.Now()
	j := s.run(placed, "--framework", "none")
	if code := j.ends(); code != 0 || strings.Count(j.String(), " is on ") != 2 {
		s.t.Fatalf("exit code %d:\n%s", code, j)
	}
	s.t.Logf("%.1f s", time.Since(began).Seconds())
	s.checkLeft()
}

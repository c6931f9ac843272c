package hosts

import (
	"strings"
	"time"
)

// returnLimit is how long an engine and a cluster may take until they use a host again that has returned.
const returnLimit = 3 * time.Minute

// returned: a cluster whose host vanished shares another, and reset --hard uses the host again once it is back.
func (s *site) returned() {
	s.t.Helper()
	lost := workers[0]
	k := s.kernel()
	k.run(s.cells.session)
	reserve := []string{"%tfcluster reserve --workers 2 --framework none --heartbeat-timeout 8s"}
	k.run(strings.Join(append(reserve, s.cells.options...), " "))
	k.run("program = '''" + placed + "'''\nopen('program.py', 'w').write(program)")
	on := func(code string) map[string]bool {
		_, text := k.end(k.send(code + "\n%tfcluster start --wait program.py"))
		hosts := map[string]bool{}
		for _, name := range workers {
			hosts[name] = strings.Contains(text, " is on "+name)
		}
		s.t.Logf("%s", text)
		return hosts
	}
	if got := on(""); !got["c"] || !got["d"] {
		s.t.Errorf("at first tasks are on %v", got)
	}
	s.down(lost)
	if got := on("import time\ntime.sleep(12)"); got["c"] || !got["d"] {
		s.t.Errorf("without %s tasks are on %v", lost, got)
	}
	s.Up(lost)
	began := time.Now()
	for got := on("%tfcluster reset --hard"); !got["c"] || !got["d"]; got = on("%tfcluster reset --hard") {
		if time.Since(began) > returnLimit { // the engine has to find the host, too
			s.t.Fatalf("%s after the return of %s tasks are on %v", time.Since(began), lost, got)
		}
	}
	k.close()
	s.checkLeft()
}

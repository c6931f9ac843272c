package hosts

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// restartLimit is how long a restart without the lost host may take, from the verdict to the first task's entry, ten
// times what was measured.
const restartLimit = 60 * time.Second

// settling is how long the engines have between two measurements.
const settling = 20 * time.Second

// restart: a run with --max-restarts goes on without the host that vanishes, long before its engine misses it. It
// returns the time from the verdict to the first task's entry.
func (s *site) restart() time.Duration {
	s.t.Helper()
	j := s.run(sleeps, "--framework", "none", "--heartbeat-timeout", "8s", "--max-restarts", "1")
	lost := j.host("worker:0")
	j.working(lost)
	before := strings.Count(j.String(), " is on ")
	s.down(lost)
	j.sees(": all tasks start again")
	began := time.Now()
	for strings.Count(j.String(), " is on ") == before {
		if time.Since(began) > restartLimit {
			s.t.Fatalf("no task has entered its program %s after the verdict:\n%s", time.Since(began), j)
		}
		time.Sleep(50 * time.Millisecond)
	}
	took := time.Since(began)
	s.t.Logf("the first task entered %.1f s after the verdict", took.Seconds())
	code := j.ends()
	s.Up(lost)
	if code != 0 || !silent("worker:[01]", lost).MatchString(j.String()) { // both may be there on a busy engine
		s.t.Errorf("exit code %d:\n%s", code, j)
	}
	s.checkLeft()
	return took
}

// BenchmarkRestart measures restart on each engine, and prints the seconds for e2e/bench.
func BenchmarkRestart(b *testing.B) {
	sites := map[string]*site{"spark": sparkSite(b), "yarn": hadoopSite(b)}
	took := map[string][]float64{}
	for b.Loop() {
		for name, s := range sites {
			took[name] = append(took[name], s.restart().Seconds())
		}
		time.Sleep(settling) // the engines find the hosts again
	}
	samples, err := json.Marshal(took)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Printf("samples %s\n", samples)
}

// cut: a cut between the notebook and a worker that is shorter than the heartbeat timeout ends no run whose tasks do
// not notice it, and what the task has written in the meantime arrives after it. Collective calls go on.
func (s *site) cut() {
	s.t.Helper()
	j := s.run(placed+`
import numpy, tfcluster.collective as collective
print("at work", flush=True)
for n in range(30):
    print("tick", n, int(collective.all_reduce(numpy.ones(1))[0]), flush=True)
    time.sleep(1)
`, "--framework", "none")
	task := j.working(workers[0])
	s.Cut(notebook, workers[0])
	time.Sleep(20 * time.Second)
	s.Heal()
	if code := j.ends(); code != 0 || strings.Contains(j.String(), "was lost") {
		s.t.Errorf("exit code %d:\n%s", code, j)
	}
	if got := len(regexp.MustCompile(`(?m)^\[`+task+`\] tick \d+ 2$`).FindAllString(j.String(), -1)); got != 30 {
		s.t.Errorf("%d of 30 lines of %s arrive:\n%s", got, task, j)
	}
	s.checkLeft()
}

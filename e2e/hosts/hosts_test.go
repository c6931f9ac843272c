package hosts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSpark and TestYARN: what befalls hosts and their network, on one engine each.
func TestSpark(t *testing.T) {
	t.Parallel()
	sparkSite(t).parts(t)
}

// TestYARN is TestSpark on Hadoop.
func TestYARN(t *testing.T) {
	t.Parallel()
	hadoopSite(t).parts(t)
}

// parts runs the tests of an engine, one after the other.
func (s *site) parts(t *testing.T) {
	lost := func(program string, options ...string) func(*site) {
		return func(s *site) { s.lostHost(program, options...) }
	}
	for _, part := range []struct {
		name string
		slow bool // not in CI
		test func(*site)
	}{
		{"names", false, (*site).names},
		{"placement", false, (*site).placement},
		{"cut", true, (*site).cut},
		{"restart", false, func(s *site) { s.restart() }},
		{"files", true, (*site).files},
		{"firewall", true, (*site).firewall},
		{"returned", true, (*site).returned},
		{"managed", true, (*site).managed},
		{"feed", true, (*site).feed},
		{"lost/fit", true, lost(fits)},
		{"lost/sleep", true, lost(sleeps, "--framework", "none", "--heartbeat-timeout", "8s")},
		{"lost/jax", true, func(s *site) {
			s.lostHost(collects, "--framework", "jax", "--env", "PYTHONPATH="+jax(s.t))
		}},
		{"lost/feed", true, (*site).lostFeed},
	} {
		if part.slow && os.Getenv(allVar) == "" {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			of := *s
			of.t = t
			part.test(&of)
		})
	}
}

// TestHosts: a cluster on hosts that share nothing needs no option. What its tasks write reaches the notebook's host,
// and comes back to the next run.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := sparkSite(t)
	program := placed + `
print("has", os.listdir(ctx.checkpoint_dir), "at", ctx.cluster_spec["worker"][ctx.task_index], flush=True)
open(ctx.log_dir + f"/of-{socket.gethostname()}", "w").write("x")
if ctx.is_chief: open(ctx.checkpoint_dir + "/weights", "w").write("w" * 100_000)
ctx.barrier("written")
`
	options := []string{"--framework", "none", "--dir", s.results}
	for _, tt := range []struct {
		has     string
		options []string
	}{{"has []", options}, {"has ['weights']", append(options, "--resume")}} {
		j := s.run(program, tt.options...)
		if code := j.ends(); code != 0 || strings.Count(j.String(), tt.has) != 2 {
			t.Fatalf("exit code %d:\n%s", code, j)
		}
		t.Log(j)
		for path, size := range map[string]int64{
			"checkpoints/weights": 100_000, "logs/of-" + j.host("worker:0"): 1, "logs/of-" + j.host("worker:1"): 1,
		} {
			path = s.Path(notebook, filepath.Join(s.results, "run-001", path))
			if info, err := os.Stat(path); err != nil || info.Size() != size {
				t.Errorf("%s did not reach the notebook's host: %v", path, err)
			}
		}
		s.checkLeft()
	}
}

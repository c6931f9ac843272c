package hosts

import (
	"testing"
)

// TestSpark and TestYARN: what befalls hosts and their network, on one engine each.
func TestSpark(t *testing.T) {
	t.Parallel()
	sparkSite(t).faults()
}

// TestYARN is TestSpark on Hadoop.
func TestYARN(t *testing.T) {
	t.Parallel()
	hadoopSite(t).faults()
}

// faults runs the tests of faults, one after the other, on the same engine.
func (s *site) faults() {
	part := func(name string, test func(*site)) {
		s.t.Run(name, func(t *testing.T) {
			of := *s
			of.t = t
			test(&of)
		})
	}
	part("names", (*site).names)
	part("placement", (*site).placement)
	part("cut", (*site).cut)
	part("restart", (*site).restart)
	for name, p := range programs(s.t) {
		part("lost/"+name, func(s *site) { s.lostHost(p.text, p.options...) })
	}
}

// TestHosts: a cluster on hosts that share nothing needs no option.
func TestHosts(t *testing.T) {
	t.Parallel()
	s := sparkSite(t)
	j := s.run(placed+`
open(ctx.log_dir + f"/of-{socket.gethostname()}", "w").write("x")
print("with", sorted(ctx.cluster_spec["worker"]), flush=True)
`, "--framework", "none")
	if code := j.ends(); code != 0 {
		t.Fatalf("exit code %d:\n%s", code, j)
	}
	t.Log(j)
	s.checkLeft()
}

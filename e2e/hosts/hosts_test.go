package hosts

import (
	"testing"
)

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

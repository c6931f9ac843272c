package local_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/local"
)

// elsewhere stands in for the binary: an agent runs in a network namespace of its own,
// where the folders that the driver writes to are empty.
const elsewhere = `#!/bin/sh
[ "$1" = agent ] || exec %[1]s "$@"
exec ip netns exec %[2]s unshare --mount sh -ec '
  mount -t tmpfs none /mnt; mkdir /mnt/bin /mnt/work; cp %[1]s /mnt/bin/tfcluster; cd /mnt/work
  for dir in %[4]s; do mount -t tmpfs none $dir; done
  %[3]s -c "import json, sys
c = json.load(sys.stdin)
c.update(shared_dir=\"\", address=\"\", runtime_dir=\"/mnt/run\")
json.dump(c, open(\"/mnt/config\", \"w\"))"
  exec /mnt/bin/tfcluster agent </mnt/config'
`

// TestNothingShared: driver and executors live in separate network and mount
// namespaces; what tasks write for TensorBoard reaches the driver all the same.
func TestNothingShared(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("missing: root, to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing: ip (iproute2), to make network namespaces")
	}
	id := os.Getpid() % 250
	ns := fmt.Sprintf("tfc-%d", id)
	here, there := fmt.Sprintf("10.249.%d.1", id), fmt.Sprintf("10.249.%d.2", id)
	veth := fmt.Sprintf("tfc%dh", id)
	sh := func(command string) error {
		out, err := exec.Command("sh", "-ec", command).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", command, err, out)
		}
		return nil
	}
	err := sh(fmt.Sprintf(`ip netns add %[1]s
ip link add %[2]s type veth peer name tfc%[5]dt netns %[1]s
ip addr add %[3]s/24 dev %[2]s; ip link set %[2]s up
ip -n %[1]s addr add %[4]s/24 dev tfc%[5]dt; ip -n %[1]s link set tfc%[5]dt up; ip -n %[1]s link set lo up`, ns, veth, here, there, id))
	t.Cleanup(func() { _ = sh("ip netns del " + ns) }) // its veth goes with it
	if err != nil {
		t.Skipf("missing: network namespaces: %v", err)
	}
	h := bare(t)
	wrapper := filepath.Join(t.TempDir(), "tfcluster")
	if err := exec.Command("ip", "netns", "exec", ns, "unshare", "--mount", "true").Run(); err != nil {
		t.Skipf("missing: mount namespaces: %v", err)
	}
	c := h.Start(t, "worker=2", func(r *clusterpb.ReserveRequest) {
		r.Advertise, r.Engine = here, map[string]string{local.AgentProgram: wrapper}
		sockets, err := cluster.RuntimeDir()
		if err != nil {
			t.Fatal(err)
		}
		hidden := strings.Join([]string{r.GetDir(), sockets, os.Getenv("TFCLUSTER_HOME")}, " ")
		if err := os.WriteFile(wrapper, fmt.Appendf(nil, elsewhere, program, ns, h.Python, hidden), 0o755); err != nil {
			t.Fatal(err)
		}
	})
	r := c.Script(`
import os, pathlib, socket, sys, tfcluster
ctx = tfcluster.context()
print("I am at", ctx.cluster_spec["worker"][ctx.task_index], file=sys.stderr)
pathlib.Path(ctx.log_dir, "events.out.tfevents.1." + str(ctx.task_index)).write_bytes(b"x" * 100_000)
ctx.barrier("written")
`, func(s *clusterpb.StartRequest) { s.WorkingDir = "" })
	st := r.Wait()
	if st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	if !strings.Contains(r.Text(), "I am at "+there+":") {
		t.Errorf("the tasks are not at %s:\n%s", there, r.Text())
	}
	for i := range 2 {
		path := filepath.Join(c.Dir, "run-001", "logs", fmt.Sprintf("events.out.tfevents.1.%d", i))
		clustertest.WaitFor(t, path, func() bool { fi, err := os.Stat(path); return err == nil && fi.Size() == 100_000 })
	}
}

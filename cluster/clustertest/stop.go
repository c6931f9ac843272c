package clustertest

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// lockstep is a loop in which all tasks wait for each other in every step, as in a collective. It reports its
// steps. If one task left after an earlier step, the other's barrier would fail.
const lockstep = `
import tfcluster
ctx = tfcluster.context()
step = 0
try:
    while True:
        step += 1
        ctx.barrier("step")
        ctx.report(step=step)
        if step == 3:
            print("here", flush=True)
except SystemExit as e:
    print("left after step", step, "code", e.code, flush=True)
    raise
`

var leftAfter = regexp.MustCompile(`\[worker:\d\] left after step (\d+) code 143`)

func testAgreedStep(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	r := c.Script(lockstep)
	r.Line("[worker:0] here")
	r.Line("[worker:1] here")
	c.stop(30_000)
	st := r.Wait()
	left := leftAfter.FindAllStringSubmatch(r.Text(), -1)
	if st.GetState() != "stopped" || len(left) != 2 || left[0][1] != left[1][1] {
		t.Errorf("the run is %s; its lines:\n%s\n%s", st.GetState(), r.Text(), r.Notes())
	}
}

// unreachable waits in native code for a lock that is never released, as a task in a collective waits for a
// peer that has left.
const unreachable = `
import ctypes, os, threading, time
threading.Timer(0.2, print, ["here", os.environ["TASK_INDEX"]], {"flush": True}).start()
try:
    if os.environ["TASK_INDEX"] == "1":
        libc = ctypes.CDLL(None)
        mutex = ctypes.create_string_buffer(64)
        libc.pthread_mutex_lock(mutex)
        libc.pthread_mutex_lock(mutex)
    time.sleep(600)
except SystemExit:
    if os.environ["TASK_INDEX"] == "0":
        time.sleep(5)  # longer than worker:1 may take
    print("saved", flush=True)
    raise
`

// testUnreachable uses a grace period longer than the test's deadline, so that only the rule for unreachable
// tasks kills worker:1 in time.
func testUnreachable(t *testing.T, h Harness) {
	c := h.Start(t, "worker=3")
	r := c.Script(unreachable)
	for _, task := range []string{"0", "1", "2"} {
		r.Line("here " + task)
	}
	c.stop(2 * Deadline.Milliseconds())
	st := r.Wait()
	if st.GetState() != "stopped" || !strings.Contains(r.Notes(), "killed worker:1") {
		t.Errorf("the run is %s: %s", st.GetState(), r.Notes())
	}
	for _, line := range []string{"[worker:0] saved", "[worker:2] saved"} {
		if !strings.Contains(r.Text(), line) {
			t.Errorf("no line %q in\n%s", line, r.Text())
		}
	}
}

// stop stops the cluster's run.
func (c *Cluster) stop(graceMillis int64) {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	if _, err := c.Client.Stop(ctx, &clusterpb.StopRequest{GraceMillis: graceMillis}); err != nil {
		c.T.Fatalf("stop: %v", err)
	}
}

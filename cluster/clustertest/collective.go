package clustertest

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// summing adds up vectors of all tasks, larger than the memory that they share, and says how they travelled.
const summing = `
import numpy as np
import tfcluster.collective as collective

def main_fun(args, ctx):
    for n in range(%[1]d):
        total = collective.all_reduce(np.full(%[2]d, %[3]d + n + ctx.worker_num, dtype="float64"))
        assert (total == 2 * (%[3]d + n) + 1).all(), (n, total)
    gathered = collective.all_gather(np.array([%[3]d + ctx.worker_num]))
    assert gathered.tolist() == [%[3]d, %[3]d + 1], gathered
    collective.barrier()
    own, other = (collective._group._memory.get(rank) for rank in (ctx.worker_num, 1 - ctx.worker_num))
    print("sums are right, by", "shared memory" if own and other else "TCP", flush=True)
`

var summed = regexp.MustCompile(`\[worker:\d\] sums are right, by (shared memory|TCP)`)

// killed adds up vectors until worker 1 kills itself: the call of the other task fails at the same time.
const killed = `
import os
import signal

import numpy as np
import tfcluster.collective as collective

def main_fun(args, ctx):
    for n in range(1000):
        if n == 20 and ctx.worker_num == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        collective.all_reduce(np.ones(1 << 18))
`

// testCollective: two tasks make collective calls, wherever their executors are. When one is killed, the run names it
// and not the task whose call failed for it, and the executors serve the next run.
func testCollective(t *testing.T, h Harness) {
	c := h.Start(t, "worker=2")
	Summed(t, Summing(c, 5, 3_000_000, 7))
	r := c.Script(killed, func(s *clusterpb.StartRequest) { s.Program.Function = "main_fun" })
	if f := r.Wait().GetFailure(); f.GetTask() != "worker:1" || f.GetSignal() != 9 {
		t.Fatalf("the run failed by %v\n%s", f, r.Text())
	}
	Summed(t, Summing(c, 2, 100_000, 11))
}

// Summing starts a program of two tasks that combine vectors of so many numbers, from base on, so many times.
func Summing(c *Cluster, times, size, base int) *Run {
	return c.Script(fmt.Sprintf(summing, times, size, base),
		func(s *clusterpb.StartRequest) { s.Program.Function = "main_fun" })
}

// Summed waits for a program of Summing.
func Summed(t *testing.T, r *Run) {
	t.Helper()
	if st := r.Wait(); st.GetState() != "finished" {
		t.Fatalf("the run is %s: %v\n%s", st.GetState(), st.GetFailure(), r.Text())
	}
	ways := summed.FindAllStringSubmatch(r.Text(), -1)
	if len(ways) != 2 || ways[0][1] != ways[1][1] {
		t.Fatalf("the tasks said: %s", r.Text())
	}
	t.Logf("by %s", ways[0][1])
}

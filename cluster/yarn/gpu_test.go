package yarn_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/yarn/hadooptest"
)

// printGPUs is a program that prints its visible GPUs.
const printGPUs = `
import os
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
`

var printedGPUs = regexp.MustCompile(`\[(\S+)\] sees (\S+)`)

// skipWithRealGPUs skips the test if agents would find this machine's GPUs instead of the simulated ones.
func skipWithRealGPUs(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("this machine has real GPUs, which NVML lists")
	}
}

// requestGPUs requests small executors on labelled nodes, with one GPU for each worker.
func requestGPUs(label string) func(*clusterpb.ReserveRequest) {
	return func(r *clusterpb.ReserveRequest) {
		for _, role := range r.Roles {
			role.Each = &clusterpb.Resources{MemoryBytes: 512 << 20, NodeLabel: label}
			if role.Name == "worker" {
				role.Each.Gpus = 1
			}
		}
	}
}

// visibleGPUs starts a program on a cluster and returns the visible GPUs of each of its tasks.
func visibleGPUs(t *testing.T, c *clustertest.Cluster, tasks int) map[string]string {
	t.Helper()
	r := c.Script(printGPUs + forever)
	found := map[string]string{}
	clustertest.WaitFor(t, "a line of every task", func() bool {
		for _, m := range printedGPUs.FindAllStringSubmatch(r.Text(), -1) {
			found[m[1]] = m[2]
		}
		return len(found) == tasks
	})
	return found
}

// stopRun stops the program that visibleGPUs started.
func stopRun(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Stop(ctx, &clusterpb.StopRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c.Run(st.GetId()).Wait()
}

// sharesGPUs: containers on one node have different GPUs, also those of different clusters; containers
// without a request for GPUs see none; and the GPUs of a killed agent become free.
func sharesGPUs(t *testing.T, h *hadooptest.Cluster, node int, label string) {
	skipWithRealGPUs(t)
	t.Parallel()
	c := harness(t, h).Start(t, "worker=2 ps=1", requestGPUs(label))
	check := func(when string) {
		t.Helper()
		got := visibleGPUs(t, c, 3)
		gpus := []string{got["worker:0"], got["worker:1"]}
		slices.Sort(gpus)
		if !slices.Equal(gpus, h.GPUs(node)) || got["ps:0"] != "-1" {
			t.Errorf("%s the tasks have %v, the node has %v", when, got, h.GPUs(node))
		}
	}
	check("at first")
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := c.GPUs(ctx, &clusterpb.GPUsRequest{})
	if err != nil || len(reply.GetErrors()) > 0 {
		t.Errorf("gpus: %v, %v", reply.GetErrors(), err)
	}
	var shown []string
	for _, g := range reply.GetGpus() {
		shown = append(shown, fmt.Sprintf("%s: %s on %s", g.GetHolder(), g.GetName(), g.GetHost()))
	}
	on, _, _ := strings.Cut(h.NodeID(node), ":")
	if want := []string{"worker:0: NVIDIA T4 on " + on, "worker:1: NVIDIA T4 on " + on}; !slices.Equal(
		slices.Sorted(slices.Values(shown)), want) {
		t.Errorf("gpus shows %v", reply)
	}
	for _, x := range st.GetExecutors() {
		if x.GetTask() == "worker:1" {
			if err := syscall.Kill(int(x.GetPid()), syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	clustertest.WaitFor(t, "the end of its task", func() bool { return c.Task("worker:1").GetState() == "exited" })
	stopRun(t, c)
	check("after an agent was killed")
	c.End()
	first, second := harness(t, h).Start(t, "worker=1", requestGPUs(label)),
		harness(t, h).Start(t, "worker=1", requestGPUs(label))
	gpus := []string{visibleGPUs(t, first, 1)["worker:0"], visibleGPUs(t, second, 1)["worker:0"]}
	slices.Sort(gpus)
	if !slices.Equal(gpus, h.GPUs(node)) {
		t.Errorf("two clusters on a node have %v, it has %v", gpus, h.GPUs(node))
	}
}

// reportsMissingGPUs: an agent without the GPUs that YARN promised reports the reason in one line.
func reportsMissingGPUs(t *testing.T, h *hadooptest.Cluster, node int, label string) {
	skipWithRealGPUs(t)
	h.BreakGPUs(node)
	defer h.MendGPUs(node)
	f := harness(t, h).Launch(t, "worker=1", requestGPUs(label)).Reserved()
	on, _, _ := strings.Cut(h.NodeID(node), ":")
	for _, want := range []string{
		"worker:0", on + ": it got no GPU: list the GPUs: ",
		"nvidia-smi failed (exit status 9): NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
	} {
		if !strings.Contains(f.GetSummary(), want) || strings.Contains(f.GetSummary(), "\n") {
			t.Errorf("%q is not in the one line: %v", want, f)
		}
	}
}

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

// sees is a program that tells which GPUs it has.
const sees = `
import os
print("sees", os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
`

var seen = regexp.MustCompile(`\[(\S+)\] sees (\S+)`)

// ownGPUs skips the test where agents would find other GPUs than the test's.
func ownGPUs(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/driver/nvidia"); err == nil {
		t.Skip("this machine has GPUs of its own, which NVML lists")
	}
}

// onGPUs asks for small executors on labelled nodes, and for a GPU for each worker.
func onGPUs(label string) func(*clusterpb.ReserveRequest) {
	return func(r *clusterpb.ReserveRequest) {
		for _, role := range r.Roles {
			role.Each = &clusterpb.Resources{MemoryBytes: 512 << 20, NodeLabel: label}
			if role.Name == "worker" {
				role.Each.Gpus = 1
			}
		}
	}
}

// look starts a program on a cluster and returns what each of its tasks has for GPUs.
func look(t *testing.T, c *clustertest.Cluster, tasks int) map[string]string {
	t.Helper()
	r := c.Script(sees + forever)
	found := map[string]string{}
	clustertest.WaitFor(t, "a word of every task", func() bool {
		for _, m := range seen.FindAllStringSubmatch(r.Text(), -1) {
			found[m[1]] = m[2]
		}
		return len(found) == tasks
	})
	return found
}

// halt ends what look started.
func halt(t *testing.T, c *clustertest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), clustertest.Deadline)
	defer cancel()
	st, err := c.Stop(ctx, &clusterpb.StopRequest{})
	if err != nil {
		t.Fatal(err)
	}
	c.Run(st.GetId()).Wait()
}

// sharesGPUs: the containers of one node have each a GPU of its own, whoever's they are,
// those that asked for none have none, and what a killed agent held is free.
func sharesGPUs(t *testing.T, h *hadooptest.Cluster, node int, label string) {
	ownGPUs(t)
	t.Parallel()
	c := harness(t, h).Start(t, "worker=2 ps=1", onGPUs(label))
	all := func(when string) {
		t.Helper()
		got := look(t, c, 3)
		gpus := []string{got["worker:0"], got["worker:1"]}
		slices.Sort(gpus)
		if !slices.Equal(gpus, h.GPUs(node)) || got["ps:0"] != "-1" {
			t.Errorf("%s the tasks have %v, the node has %v", when, got, h.GPUs(node))
		}
	}
	all("at first")
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
	if want := []string{"worker:0: NVIDIA T4 on " + on, "worker:1: NVIDIA T4 on " + on}; !slices.Equal(slices.Sorted(slices.Values(shown)), want) {
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
	halt(t, c)
	all("after an agent was killed")
	c.End()
	first, second := harness(t, h).Start(t, "worker=1", onGPUs(label)), harness(t, h).Start(t, "worker=1", onGPUs(label))
	gpus := []string{look(t, first, 1)["worker:0"], look(t, second, 1)["worker:0"]}
	slices.Sort(gpus)
	if !slices.Equal(gpus, h.GPUs(node)) {
		t.Errorf("two clusters on a node have %v, it has %v", gpus, h.GPUs(node))
	}
}

// missesGPUs: a node that has none of what YARN promised says why, in one line.
func missesGPUs(t *testing.T, h *hadooptest.Cluster, node int, label string) {
	ownGPUs(t)
	h.BreakGPUs(node)
	defer h.MendGPUs(node)
	f := harness(t, h).Launch(t, "worker=1", onGPUs(label)).Reserved()
	on, _, _ := strings.Cut(h.NodeID(node), ":")
	for _, want := range []string{"worker:0", on + " gives it no GPU: list the GPUs: ", "nvidia-smi (exit status 9): NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."} {
		if !strings.Contains(f.GetSummary(), want) || strings.Contains(f.GetSummary(), "\n") {
			t.Errorf("%q is not in the one line: %v", want, f)
		}
	}
}

package local_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/cluster/local"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// TestReplaceAtOnce: after several concurrent replacements, as by two resets, an executor has one agent,
// and none after the release.
func TestReplaceAtOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), clustertest.Deadline)
	defer cancel()
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	agent := filepath.Join(dir, "agent.sh")
	executable.Write(t, agent, "#!/bin/sh\necho $$ >> "+pids+"\nexec sleep 600\n")
	id := cluster.ExecutorID("0")
	b := &local.Backend{}
	alloc, err := b.Allocate(ctx, cluster.Request{
		Cluster:   "t-replace-at-once",
		Executors: []cluster.ExecutorRequest{{ID: id, Task: cluster.TaskID{Role: cluster.Worker}}},
		Reserve:   &clusterpb.ReserveRequest{Dir: dir}, Program: agent, StateDir: dir,
		AgentConfig: func(cluster.ExecutorID, int) (*clusterpb.AgentConfig, error) { return &clusterpb.AgentConfig{}, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	const times = 5
	var wg sync.WaitGroup
	for range times {
		wg.Go(func() {
			if err := alloc.Replace(ctx, id); err != nil {
				t.Errorf("replace: %v", err)
			}
		})
	}
	wg.Wait()
	started := func() (alive int) {
		b, err := os.ReadFile(pids)
		if err != nil {
			return 0
		}
		for line := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(line); err == nil && state.ProcessOf(pid).Alive() {
				alive++
			}
		}
		return alive
	}
	clustertest.WaitFor(t, "the one agent", func() bool { return started() == 1 })
	if err := alloc.Release(ctx, cluster.Succeeded, ""); err != nil {
		t.Error(err)
	}
	if n := started(); n > 0 {
		t.Error(fmt.Sprint(n, " agents are left"))
	}
	// The driver, which removes the folder of the cluster's sockets, does not run here.
	if base, err := state.RuntimeDir(); err == nil {
		if err := os.RemoveAll(filepath.Join(base, "t-replace-at-once")); err != nil {
			t.Error(err)
		}
	}
}

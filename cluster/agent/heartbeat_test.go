package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// fakeSMI is a nvidia-smi of a machine with one GPU. It writes the pids of those that print for ever to a file.
const fakeSMI = `#!/bin/sh
if [ "$*" = "-q -x" ]; then
	echo '<nvidia_smi_log><gpu><product_name>T4</product_name><uuid>GPU-5f1c</uuid></gpu></nvidia_smi_log>'
	exit
fi
echo $$ >> PIDS
while :; do
	echo 'GPU-5f1c, 42, 426'
	sleep 0.1
done
`

// TestHeartbeatsHaveGPUs: the heartbeats of an agent with a GPU have its use; nothing is left of what measures it. An
// agent without GPUs measures nothing.
func TestHeartbeatsHaveGPUs(t *testing.T) {
	if _, err := gpu.Inventory(t.Context()); err == nil {
		t.Skip("this machine has GPUs of its own")
	}
	bin := t.TempDir()
	pids := filepath.Join(bin, "pids")
	executable.Write(t, filepath.Join(bin, "nvidia-smi"), strings.ReplaceAll(fakeSMI, "PIDS", pids))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("TFCLUSTER_GPU_LOCKS", filepath.Join(bin, "locks"))
	t.Setenv("CUDA_VISIBLE_DEVICES", "")

	without := newCoordinator(t, &clusterpb.WarmUp{Plain: true})
	without.runAgent(nil)
	heard := func(c *coordinator, n int, match func(*clusterpb.Heartbeat) bool) func() bool {
		return func() bool {
			for _, m := range c.messages {
				if h := m.GetHeartbeat(); h != nil && match(h) {
					n--
				}
			}
			return n <= 0
		}
	}
	without.await("a heartbeat", heard(without, 1, func(*clusterpb.Heartbeat) bool { return true }))
	without.mu.Lock()
	if slices.ContainsFunc(without.messages,
		func(m *clusterpb.AgentMessage) bool { return len(m.GetHeartbeat().GetGpus()) > 0 }) {
		t.Error("an agent without GPUs reports their use")
	}
	without.mu.Unlock()
	if text, err := os.ReadFile(pids); err == nil {
		t.Errorf("an agent without GPUs has started nvidia-smi %s", text)
	}

	t.Run("with a GPU", func(t *testing.T) {
		c := newCoordinator(t, &clusterpb.WarmUp{Plain: true})
		c.runAgent(func(cfg *clusterpb.AgentConfig) { cfg.Gpus = &clusterpb.GPUShare{Count: 1} })
		c.await("the use of the GPU", heard(c, 1, func(h *clusterpb.Heartbeat) bool {
			return len(h.GetGpus()) == 1 && h.GetGpus()[0].GetUuid() == "GPU-5f1c" && h.GetGpus()[0].GetUtilization() == 42 &&
				h.GetGpus()[0].GetUsedBytes() == 426<<20
		}))
	})
	text, err := os.ReadFile(pids)
	if started := strings.Fields(string(text)); err != nil || len(started) != 1 {
		t.Fatalf("nvidia-smi was started as %q: %v", started, err)
	}
	if pid, _ := strconv.Atoi(strings.TrimSpace(string(text))); syscall.Kill(pid, 0) == nil {
		t.Errorf("nvidia-smi %d has outlived the agent", pid)
	}
}

// BenchmarkHeartbeat makes one heartbeat of an agent with four tasks, up to its bytes.
func BenchmarkHeartbeat(b *testing.B) {
	r := &run{id: 1}
	for i := range 4 {
		t := &task{launch: &clusterpb.Launch{Run: 1, Task: "worker:" + strconv.Itoa(i)}}
		t.proc.running = &interpreter.Process{PID: os.Getpid()}
		r.tasks = append(r.tasks, t)
	}
	a := &Agent{runs: map[int32]*run{1: r}, link: &link{open: true, wake: make(chan struct{}, 1)}}
	for b.Loop() {
		a.heartbeat()
		m := a.link.queue[0]
		a.link.queue = a.link.queue[:0]
		if len(m.GetHeartbeat().GetUsage()) != 4 {
			b.Fatal("it lacks tasks")
		}
		if _, err := proto.Marshal(m); err != nil {
			b.Fatal(err)
		}
	}
}

package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// usage returns a task's resource usage for the heartbeat; nil if the process has ended.
func usage(name string, pid int) *clusterpb.TaskUsage {
	stat, ok := proc.Read(pid)
	if !ok {
		return nil
	}
	return &clusterpb.TaskUsage{
		Task: name, Pid: int32(pid), State: stat.State,
		Usage: &clusterpb.Usage{RssBytes: stat.RSS, CpuSeconds: &stat.CPU},
	}
}

// killSession kills the processes of a task whose zygote has died: those in its session and
// those with its mark. A reused pid has neither.
func killSession(session int, id string) {
	proc.Marks(func(pid int, mark func(string) string) {
		marked := mark(proc.TaskMarker) == id
		stat, ok := proc.Read(pid)
		if ok && (marked || pid != session && stat.Session == session) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
}

// oomCounter reads how many processes of a memory cgroup the kernel has killed for lack of
// memory.
type oomCounter struct{ path string }

// openOOMCounter returns the counter of a process's memory cgroup, version 1 or 2; the zero
// value if it has none.
func openOOMCounter(pid int) oomCounter {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return oomCounter{}
	}
	return findOOMCounter(string(raw), "/sys/fs/cgroup")
}

func findOOMCounter(cgroups, root string) oomCounter {
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		var candidates []string
		switch {
		case parts[0] == "0":
			candidates = []string{filepath.Join(root, parts[2], "memory.events"), filepath.Join(root, "memory.events")}
		case parts[1] == "memory":
			v1 := filepath.Join(root, "memory")
			// In a container the path is the host's, and its own cgroup is the root.
			candidates = []string{filepath.Join(v1, parts[2], "memory.oom_control"), filepath.Join(v1, "memory.oom_control")}
		}
		for _, path := range candidates {
			if _, err := os.Stat(path); err == nil {
				return oomCounter{path}
			}
		}
	}
	return oomCounter{}
}

func (c oomCounter) read() int64 {
	if c.path == "" {
		return 0
	}
	raw, err := os.ReadFile(c.path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.ParseInt(strings.TrimSpace(rest), 10, 64)
			return n
		}
	}
	return 0
}

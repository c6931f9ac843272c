package agent

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// clockTicks is the unit of CPU times in /proc: USER_HZ, 100 on every Linux.
const clockTicks = 100

// procStat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type procStat struct {
	state   string
	parent  int
	session int
	cpu     float64 // seconds, with children that were waited for
	rss     uint64  // bytes
}

func readStat(pid int) (procStat, bool) {
	raw, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return procStat{}, false
	}
	end := bytes.LastIndexByte(raw, ')') // the command's name may hold anything
	fields := strings.Fields(string(raw[end+1:]))
	if end < 0 || len(fields) < 22 {
		return procStat{}, false
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(fields[i], 10, 64)
		return n
	}
	ticks := number(11) + number(12) + number(13) + number(14)
	return procStat{
		state: fields[0], parent: int(number(1)), session: int(number(3)),
		cpu: float64(ticks) / clockTicks, rss: number(21) * uint64(os.Getpagesize()),
	}, true
}

// usage is a task's for the heartbeat.
func usage(name string, pid int) *clusterpb.TaskUsage {
	stat, ok := readStat(pid)
	if !ok {
		return nil
	}
	return &clusterpb.TaskUsage{Task: name, Pid: int32(pid), RssBytes: stat.rss, CpuSeconds: stat.cpu, State: stat.state}
}

// Environment entries by which what a task started is found: those of a task, and
// those of all that descends from a zygote. What is forked and not executed keeps
// the zygote's environment, and shows nothing of the task's.
const (
	taskMarker   = "TFCLUSTER_TASK="
	zygoteMarker = "TFCLUSTER_ZYGOTE="
)

// environs calls look with each process of this user and its environment.
func environs(look func(pid int, environ []byte)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if err != nil {
			continue // another user's, or gone
		}
		look(pid, environ)
	}
}

// variable is an environment's entry that begins with name and =.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name)); ok {
			return string(value)
		}
	}
	return ""
}

// killSession kills the processes of a task whose zygote is gone: those of its
// session and those that carry its id. A pid that came to another use has
// neither.
func killSession(session int, id string) {
	environs(func(pid int, environ []byte) {
		marked := variable(environ, taskMarker) == id
		stat, ok := readStat(pid)
		if ok && (marked || pid != session && stat.session == session) {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
}

// killOrphans kills what descends from a zygote that was killed: a task's daemon,
// forked into a session of its own, carries no mark but the zygote's. A zygote
// that lives has only let go of this agent.
func killOrphans(zygote int, mark string) {
	if stat, ok := readStat(zygote); mark == "" || ok && stat.state != "Z" && stat.state != "X" && markOf(zygote) == mark {
		return
	}
	found := true
	for end := time.Now().Add(settleKill); found && time.Now().Before(end); {
		found = false // looked for again: one may have forked meanwhile
		environs(func(pid int, environ []byte) {
			if variable(environ, zygoteMarker) == mark {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		})
	}
}

// markOf is the mark that a zygote and its descendants carry, "" where it is not to
// be had.
func markOf(pid int) string {
	environ, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return ""
	}
	return variable(environ, zygoteMarker)
}

// oomCounter reads how many processes of a memory cgroup the kernel has killed.
type oomCounter struct{ path string }

// openOOMCounter finds the counter of a process's memory cgroup, version 1 or 2.
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

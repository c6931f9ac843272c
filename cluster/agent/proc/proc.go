// Package proc reads what Linux tells of processes (proc(5)), and finds those that a
// task started.
//
// It imports little: cluster/agent/forking begins before the rest of the program does.
package proc

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// clockTicks is the unit of CPU times in /proc: USER_HZ, 100 on every Linux.
const clockTicks = 100

// Stat is what is used of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	State   string // R, S, T, Z, …
	Parent  int
	Session int
	CPU     float64 // seconds, with children that were waited for
	RSS     uint64  // bytes
}

// Over is whether the process has ended, and waits for its parent at most.
func (s Stat) Over() bool { return s.State == "Z" || s.State == "X" }

// Read reads a process's; ok is false where there is none.
func Read(pid int) (stat Stat, ok bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	end := bytes.LastIndexByte(raw, ')') // the command's name may hold anything
	fields := strings.Fields(string(raw[end+1:]))
	if end < 0 || len(fields) < 22 {
		return Stat{}, false
	}
	number := func(i int) uint64 {
		n, _ := strconv.ParseUint(fields[i], 10, 64)
		return n
	}
	ticks := number(11) + number(12) + number(13) + number(14)
	return Stat{
		State: fields[0], Parent: int(number(1)), Session: int(number(3)),
		CPU: float64(ticks) / clockTicks, RSS: number(21) * uint64(os.Getpagesize()),
	}, true
}

// Table are processes that live, by pid.
type Table map[int]Stat

// ReadTable reads all that live now.
func ReadTable() Table {
	found := Table{}
	for _, pid := range pids() {
		if stat, ok := Read(pid); ok && !stat.Over() {
			found[pid] = stat
		}
	}
	return found
}

// pids are of all processes, also of those that have ended.
func pids() []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			found = append(found, pid)
		}
	}
	return found
}

// IsBelow is whether a process is another, or descends from it.
func (t Table) IsBelow(pid, root int) bool {
	for range len(t) + 1 {
		if pid == root {
			return true
		}
		stat, ok := t[pid]
		if !ok {
			return false
		}
		pid = stat.Parent
	}
	return false
}

// Below are the processes that descend from one.
func (t Table) Below(root int) []int {
	var found []int
	for pid := range t {
		if pid != root && t.IsBelow(pid, root) {
			found = append(found, pid)
		}
	}
	return found
}

// KillBelow kills every process that descends from this one.
func KillBelow() {
	for _, pid := range ReadTable().Below(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL) // gone is as well
	}
}

// Environment entries by which what a task started is found: those of a task, and
// those of all that descends from a zygote. What is forked and not executed keeps
// the zygote's environment, and shows nothing of the task's.
const (
	TaskMarker   = "TFCLUSTER_TASK="
	ZygoteMarker = "TFCLUSTER_ZYGOTE="
)

// Marks calls look with each process of this user, and with what gives its mark of a
// kind, "" where it has none.
func Marks(look func(pid int, mark func(marker string) string)) {
	for _, pid := range pids() {
		environ, err := readEnviron(pid)
		if err != nil {
			continue // another user's, or gone
		}
		look(pid, func(marker string) string { return variable(environ, marker) })
	}
}

// Mark is a process's mark of a kind, "" where it has none or is not to be read.
func Mark(pid int, marker string) string {
	environ, err := readEnviron(pid)
	if err != nil {
		return ""
	}
	return variable(environ, marker)
}

func readEnviron(pid int) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
}

// variable is an environment's entry that begins with name, which ends with =.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name)); ok {
			return string(value)
		}
	}
	return ""
}

// Owner returns the user id of a file's owner; of /proc/PID that is the process's user.
func Owner(path string) (uid string, ok bool) {
	info, err := os.Stat(path)
	if err != nil {
		return "", false
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "", false
	}
	return strconv.FormatUint(uint64(stat.Uid), 10), true
}

// Package proc reads process data from /proc (proc(5)) and finds the processes that a task
// started.
//
// It imports little, because cluster/agent/forking runs before the rest of the program is
// initialised.
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

// Stat has fields of /proc/PID/stat (proc_pid_stat(5)).
type Stat struct {
	State   string // R, S, T, Z, …
	Parent  int
	Session int
	CPU     float64 // seconds, including children that were waited for
	RSS     uint64  // bytes
	Threads int
	Started uint64 // clock ticks since the host's boot: tells processes of one pid apart
}

// Over reports whether the process has ended, even if it was not reaped yet. State is its main thread's: where that has
// ended before the others, the process lives, and is the parent of what it has started.
func (s Stat) Over() bool { return s.State == "Z" && s.Threads < 2 || s.State == "X" }

// Read reads the Stat of a process; ok is false if there is none.
func Read(pid int) (stat Stat, ok bool) {
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Stat{}, false
	}
	end := bytes.LastIndexByte(raw, ')') // the command's name may contain any character
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
		CPU: float64(ticks) / clockTicks, RSS: number(21) * uint64(os.Getpagesize()), Threads: int(number(17)),
		Started: number(19),
	}, true
}

// Table maps pids to living processes.
type Table map[int]Stat

// ReadTable reads all living processes.
func ReadTable() Table {
	found := Table{}
	for _, pid := range pids() {
		if stat, ok := Read(pid); ok && !stat.Over() {
			found[pid] = stat
		}
	}
	return found
}

// pids returns the pids of all processes, including zombies.
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

// IsBelow returns whether pid is root or one of its descendants.
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

// Below returns the descendants of root.
func (t Table) Below(root int) []int {
	var found []int
	for pid := range t {
		if pid != root && t.IsBelow(pid, root) {
			found = append(found, pid)
		}
	}
	return found
}

// KillBelow kills all descendants of this process.
func KillBelow() {
	for _, pid := range ReadTable().Below(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
	}
}

// Environment entries by which processes are found: of a task's processes, and of all
// descendants of a zygote. A fork without exec has the zygote's environment, without the task's
// entry.
const (
	TaskMarker   = "TFCLUSTER_TASK="
	ZygoteMarker = "TFCLUSTER_ZYGOTE="
)

// Marks calls look for each process of this user. mark returns its value of a marker, "" if it
// has none.
func Marks(look func(pid int, mark func(marker string) string)) {
	for _, pid := range pids() {
		environ, err := readEnviron(pid)
		if err != nil {
			continue // of another user, or ended
		}
		look(pid, func(marker string) string { return variable(environ, marker) })
	}
}

// Mark returns a process's value of a marker; "" if it has none or cannot be read.
func Mark(pid int, marker string) string {
	environ, _ := readEnviron(pid) // fails for a process of another user, and for one that has ended
	return variable(environ, marker)
}

func readEnviron(pid int) ([]byte, error) {
	return os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
}

// variable returns the value of the entry that begins with name, which ends with =.
func variable(environ []byte, name string) string {
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name)); ok {
			return string(value)
		}
	}
	return ""
}

// Owner returns the user ID of a file's owner; for /proc/PID that is the process's user.
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

package state

import (
	"os"
	"strconv"
	"strings"
)

// Process identifies a process by its PID, which the system reuses, together with the boot of
// the host and the start time.
type Process struct {
	PID   int    `json:"pid"`
	Boot  string `json:"boot"`
	Start uint64 `json:"start"` // clock ticks since boot, /proc/PID/stat field 22
}

// ThisProcess returns the identity of the calling process.
func ThisProcess() Process { return ProcessOf(os.Getpid()) }

// ProcessOf returns the identity of a process of this host.
func ProcessOf(pid int) Process {
	return Process{PID: pid, Boot: bootID(), Start: startTime(pid)}
}

// Alive reports whether this process still runs.
func (p Process) Alive() bool {
	return p.PID > 0 && p.Boot == bootID() && p.Start != 0 && startTime(p.PID) == p.Start
}

func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// startTime returns the start time of a process; 0 if it has ended or is a zombie.
func startTime(pid int) uint64 {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	i := strings.LastIndexByte(string(b), ')')
	if i < 0 {
		return 0
	}
	f := strings.Fields(string(b[i+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0
	}
	n, err := strconv.ParseUint(f[19], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

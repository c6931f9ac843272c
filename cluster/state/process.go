package state

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/proc"
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

// Stopped returns whether that very process is stopped by a signal or a debugger.
func (p Process) Stopped() bool {
	stat, _ := proc.Read(p.PID)
	return p.Alive() && stat.Started == p.Start && (stat.State == "T" || stat.State == "t")
}

// Kill ends that very process by SIGKILL and waits until it is gone, or ctx ends. One that is
// gone is no error.
func (p Process) Kill(ctx context.Context) error {
	if !p.Alive() {
		return nil
	}
	fd, err := unix.PidfdOpen(p.PID, 0)
	if err != nil {
		return fmt.Errorf("end process %d: %w", p.PID, err)
	}
	defer unix.Close(fd)
	if !p.Alive() { // the number was another process's when it was opened
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d: %w", p.PID, err)
	}
	for p.Alive() {
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("process %d was killed but has not ended: it may wait for a disk (ps shows it in state D)", p.PID)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
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
	stat, _ := proc.Read(pid)
	if stat.State == "Z" || stat.State == "X" {
		return 0
	}
	return stat.Started
}

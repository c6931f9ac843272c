package interpreter

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/proc"
)

// orphansWithin is how long orphans are looked for: one may have forked meanwhile.
const orphansWithin = time.Second

// killOrphans kills what descends from a zygote that was killed: a task's daemon,
// forked into a session of its own, carries no mark but the zygote's. A zygote
// that lives has only let go of this agent.
func killOrphans(zygote int, mark string) {
	if stat, ok := proc.Read(zygote); mark == "" || ok && !stat.Over() && markOf(zygote) == mark {
		return
	}
	found := true
	for end := time.Now().Add(orphansWithin); found && time.Now().Before(end); {
		found = false // looked for again: one may have forked meanwhile
		proc.Marks(func(pid int, of func(string) string) {
			if of(proc.ZygoteMarker) == mark {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		})
	}
}

// markOf is the mark that a zygote and its descendants carry, "" where it is not to
// be had.
func markOf(pid int) string { return proc.Mark(pid, proc.ZygoteMarker) }

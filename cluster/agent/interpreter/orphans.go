package interpreter

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/proc"
)

// orphansWithin bounds the search for orphans, which is repeated because one may have forked
// meanwhile.
const orphansWithin = time.Second

// killOrphans kills the descendants of a zygote that was killed, e.g. daemons in sessions of
// their own, which have no mark but the zygote's. It does nothing if the zygote lives and only
// closed this agent's connection.
func killOrphans(zygote int, mark string) {
	if stat, ok := proc.Read(zygote); mark == "" || ok && !stat.Over() && markOf(zygote) == mark {
		return
	}
	found := true
	for end := time.Now().Add(orphansWithin); found && time.Now().Before(end); {
		found = false // search again: one may have forked meanwhile
		proc.Marks(func(pid int, of func(string) string) {
			if of(proc.ZygoteMarker) == mark {
				found = unix.Kill(pid, unix.SIGKILL) == nil || found
			}
		})
	}
}

// markOf returns the mark of a zygote and its descendants; "" if it cannot be read.
func markOf(pid int) string { return proc.Mark(pid, proc.ZygoteMarker) }

package spool

import (
	"path"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Names of the folder's own, beside the runs.
const (
	lockName    = ".lock"
	journalName = ".carried.json"
	stageName   = ".stage"
	bringName   = ".bring"
	recordName  = "run.json"
)

// hidden tells whether a file is still being written, or none of a run.
func hidden(name string) bool { return strings.HasPrefix(path.Base(name), ".") }

// grows tells whether a file is only ever appended to: events, and tasks' lines.
func grows(name string) bool {
	parts := strings.Split(name, "/")
	return runfiles.Grows(name) || len(parts) > 2 && parts[1] == "tasks"
}

func (s *Spool) uri(name string) string { return strings.TrimRight(s.cfg.Dir, "/") + "/" + name }

package spool

import (
	"path"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// Names in the local folder that are not runs.
const (
	lockName    = ".lock"
	journalName = ".carried.json"
	stageName   = ".stage"
	fetchName   = ".bring"
	recordName  = "run.json"
)

// hidden reports whether a file is being written or does not belong to a run.
func hidden(name string) bool { return strings.HasPrefix(path.Base(name), ".") }

// isAppendOnly reports whether a file is only appended to: event files and task logs.
func isAppendOnly(name string) bool {
	parts := strings.Split(name, "/")
	return runfiles.IsAppendOnly(name) || len(parts) > 2 && parts[1] == rundir.Lines
}

func (s *Spool) uri(name string) string { return strings.TrimRight(s.cfg.Dir, "/") + "/" + name }

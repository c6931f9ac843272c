package spool

import (
	"path"
	"regexp"
	"strconv"
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

var runFolder = regexp.MustCompile(`^run-(\d{3,9})$`)

// runNumber is the number of the run with a folder.
func runNumber(folder string) (int32, bool) {
	m := runFolder.FindStringSubmatch(folder)
	if m == nil {
		return 0, false
	}
	n, err := strconv.ParseInt(m[1], 10, 32)
	return int32(n), err == nil
}

// hidden tells whether a file is still being written, or none of a run.
func hidden(name string) bool { return strings.HasPrefix(path.Base(name), ".") }

// grows tells whether a file is only ever appended to: events, and tasks' lines.
func grows(name string) bool {
	parts := strings.Split(name, "/")
	return runfiles.Grows(name) || len(parts) > 2 && parts[1] == "tasks"
}

func (s *Spool) uri(name string) string { return strings.TrimRight(s.cfg.Dir, "/") + "/" + name }

// Package rundir names the folders of runs below a cluster's directory, which is a folder
// of this host or a URI.
package rundir

import (
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir is a run's folder below the cluster's.
func Dir(dir string, run int32) string { return Join(dir, Name(run)) }

// Name returns the name of a run's folder.
func Name(run int32) string { return fmt.Sprintf("run-%03d", run) }

// Number returns the number of the run whose folder has this name. ok is false where
// the name is not the one that a run's folder gets.
func Number(name string) (run int32, ok bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(name, "run-"), 10, 32)
	return int32(n), err == nil && n > 0 && Name(int32(n)) == name
}

// OwnEvents ends the name of the event file that the driver writes for a program which reports
// metrics and writes no event files.
const OwnEvents = ".tfcluster"

// IsURI tells a directory elsewhere from a folder of this host.
func IsURI(dir string) bool { return strings.Contains(dir, "://") }

// Join is filepath.Join for what may be a URI.
func Join(dir string, names ...string) string {
	if IsURI(dir) {
		return strings.TrimRight(dir, "/") + "/" + path.Join(names...)
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// Below returns the path of name relative to dir, both paths or both URIs. ok is false
// where name is neither dir nor inside it.
func Below(name, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(strings.TrimRight(name, "/"), strings.TrimRight(dir, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

// Package rundir names the run folders in a cluster's directory, which is a local path or a
// URI.
package rundir

import (
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Dir returns the folder of a run in the cluster's directory.
func Dir(dir string, run int32) string { return Join(dir, Name(run)) }

// Lines is the folder of a run's folder that holds the lines of its tasks, in a folder for each.
const Lines = "tasks"

// Manifest is the file in a run's folder that says what its tasks ran with.
const Manifest = "run-manifest.json"

// Name returns the name of a run's folder.
func Name(run int32) string { return fmt.Sprintf("run-%03d", run) }

// Number returns the number of the run whose folder has this name. ok is false if the name is
// not one that Name returns.
func Number(name string) (run int32, ok bool) {
	n, err := strconv.ParseInt(strings.TrimPrefix(name, "run-"), 10, 32)
	return int32(n), err == nil && n > 0 && Name(int32(n)) == name
}

// Last returns the highest number of the run folders among the entries of a directory; 0 if there is none.
func Last(entries []fs.DirEntry) (last int32) {
	for _, e := range entries {
		if n, ok := Number(e.Name()); ok {
			last = max(last, n)
		}
	}
	return last
}

// OwnEvents is the suffix of the event file that the driver writes for a program that reports metrics and
// writes no event files.
const OwnEvents = ".tfcluster"

// IsURI reports whether a directory is a URI and not a local path.
func IsURI(dir string) bool { return strings.Contains(dir, "://") }

// Join joins path elements as filepath.Join does; dir may be a URI.
func Join(dir string, names ...string) string {
	if IsURI(dir) {
		return strings.TrimRight(dir, "/") + "/" + path.Join(names...)
	}
	return filepath.Join(append([]string{dir}, names...)...)
}

// Below returns the path of name relative to dir, both paths or both URIs. ok is false if name
// is neither dir nor inside it.
func Below(name, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(strings.TrimRight(name, "/"), strings.TrimRight(dir, "/"))
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimLeft(rest, "/"), true
}

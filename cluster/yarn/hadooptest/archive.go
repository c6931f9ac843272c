package hadooptest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// archiveLimit is how long a daemon may take to exit if it writes its archive.
const archiveLimit = 60 * time.Second

// classArchive is the file in which Java stores a daemon's loaded and verified classes (AppCDS), which halves
// its start. The first daemon of a class that exits normally writes it beside the jars. The daemons of
// benchmarks use none, as those of real clusters.
type classArchive struct {
	path string // "" if none is used
	new  string // the file that this daemon writes; "" if the archive exists
}

// archiveOf returns a daemon's archive. Of several daemons of a class the first one writes it.
func (c *Cluster) archiveOf(name, class string) classArchive {
	if _, bench := c.t.(*testing.B); bench {
		return classArchive{}
	}
	java, err := exec.LookPath("java")
	if err == nil {
		java, err = filepath.EvalSymlinks(java)
	}
	if err != nil {
		return classArchive{}
	}
	info, err := os.Stat(java)
	if err != nil {
		return classArchive{}
	}
	sum := sha256.Sum256(fmt.Append(nil, java, info.ModTime(), c.jars)) // Java rejects the archive of another Java
	a := classArchive{path: filepath.Join(c.jars, fmt.Sprintf("%s-%x.jsa", class, sum[:4]))}
	if _, err := os.Stat(a.path); !errors.Is(err, os.ErrNotExist) {
		return a
	}
	if _, number, ok := strings.Cut(name, "-"); ok && number != "0" {
		return classArchive{}
	}
	a.new = filepath.Join(c.dir, name+".jsa")
	return a
}

// javaOptions returns Java's options for the archive.
func (a classArchive) javaOptions() []string {
	switch {
	case a.path == "":
		return nil
	case a.new != "":
		return []string{"-XX:ArchiveClassesAtExit=" + a.new}
	}
	return []string{"-XX:SharedArchiveFile=" + a.path}
}

// saveArchive terminates a daemon that writes its archive, and stores the archive. A failure is ignored: a
// later daemon writes it then.
func (d *Daemon) saveArchive() {
	if d.archive.new == "" || d.cmd == nil {
		return
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return
	}
	select {
	case <-d.done:
	case <-time.After(archiveLimit):
		return
	}
	aside, err := os.MkdirTemp(d.c.jars, "archive-*") // on the same disk, for the rename
	if err != nil {
		return
	}
	defer os.RemoveAll(aside)
	b, err := os.ReadFile(d.archive.new)
	if err != nil {
		return
	}
	whole := filepath.Join(aside, "jsa")
	if os.WriteFile(whole, b, 0o644) == nil {
		_ = os.Rename(whole, d.archive.path) // another daemon may have written one
	}
}

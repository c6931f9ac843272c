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

// archiveLimit is how long a daemon may take to end when it leaves its archive.
const archiveLimit = 60 * time.Second

// archive is where Java keeps a daemon's classes as they are after they were loaded and
// verified, which halves its start. The first daemon of its kind that ends well leaves
// it beside the jars. A benchmark's daemons have none, so as to be like those of people.
type archive struct {
	path string // "" for none
	new  string // where this daemon leaves it; "" where it is there
}

// archiveOf is that of a daemon. Of several of a class the first leaves one.
func (c *Cluster) archiveOf(name, class string) archive {
	if _, bench := c.t.(*testing.B); bench {
		return archive{}
	}
	java, err := exec.LookPath("java")
	if err == nil {
		java, err = filepath.EvalSymlinks(java)
	}
	if err != nil {
		return archive{}
	}
	info, err := os.Stat(java)
	if err != nil {
		return archive{}
	}
	sum := sha256.Sum256(fmt.Append(nil, java, info.ModTime(), c.jars)) // Java refuses one of another Java
	a := archive{path: filepath.Join(c.jars, fmt.Sprintf("%s-%x.jsa", class, sum[:4]))}
	if _, err := os.Stat(a.path); !errors.Is(err, os.ErrNotExist) {
		return a
	}
	if _, number, ok := strings.Cut(name, "-"); ok && number != "0" {
		return archive{}
	}
	a.new = filepath.Join(c.dir, name+".jsa")
	return a
}

// words are Java's options for it.
func (a archive) words() []string {
	switch {
	case a.path == "":
		return nil
	case a.new != "":
		return []string{"-XX:ArchiveClassesAtExit=" + a.new}
	}
	return []string{"-XX:SharedArchiveFile=" + a.path}
}

// leave has a daemon that is to leave its archive end by itself. That it does not is no
// failure: the next one tries.
func (d *Daemon) leave() {
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
	aside, err := os.MkdirTemp(d.c.jars, "archive-*") // the same disk, and nobody else's
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
		_ = os.Rename(whole, d.archive.path) // another daemon may have left one
	}
}

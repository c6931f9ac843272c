package hadooptest

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// endLimit is how long containers may take to end after their application has.
const endLimit = 20 * time.Second

// Containers are the processes of containers that run now: command by process id.
func (c *Cluster) Containers() map[int]string {
	found := map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range dirs {
		cwd, err := os.Readlink(filepath.Join(d, "cwd"))
		if err != nil || !strings.HasPrefix(cwd, c.dir+"/node") {
			continue // gone meanwhile, or another's
		}
		words, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil || len(words) == 0 {
			continue // gone meanwhile, or a zombie
		}
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			found[pid] = strings.TrimSpace(strings.ReplaceAll(string(words), "\x00", " "))
		}
	}
	return found
}

// leftovers fails the test where containers outlive it by more than endLimit.
func (c *Cluster) leftovers() {
	if c.ResourceManager == nil {
		return
	}
	left := c.Containers()
	for end := time.Now().Add(endLimit); len(left) > 0 && time.Now().Before(end) && !c.t.Failed(); left = c.Containers() {
		time.Sleep(50 * time.Millisecond)
	}
	for pid, words := range left {
		c.t.Errorf("a container's process is left: %d %s", pid, words)
	}
}

// EndContainer ends a process of Containers that no NodeManager will end: its own was
// killed.
func (c *Cluster) EndContainer(pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.t.Errorf("end the container's process %d: %v", pid, err)
	}
}

// sweep ends what leftovers found, whose NodeManagers are gone by now.
func (c *Cluster) sweep() {
	for pid := range c.Containers() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // gone meanwhile is as good
	}
}

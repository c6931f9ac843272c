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

// endLimit is how long containers may take to end after their application.
const endLimit = 2 * time.Minute

// Containers returns the commands of the processes in an application's containers, by process ID; "" stands for all
// applications.
func (c *Cluster) Containers(application string) map[int]string {
	found := map[int]string{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, d := range dirs {
		cwd, err := os.Readlink(filepath.Join(d, "cwd"))
		if err != nil || !strings.HasPrefix(cwd, c.dir+"/node") || !strings.Contains(cwd, application) {
			continue // ended meanwhile, or not in a container
		}
		cmdline, err := os.ReadFile(filepath.Join(d, "cmdline"))
		if err != nil || len(cmdline) == 0 {
			continue // ended meanwhile, or a zombie
		}
		if pid, err := strconv.Atoi(filepath.Base(d)); err == nil {
			found[pid] = strings.TrimSpace(strings.ReplaceAll(string(cmdline), "\x00", " "))
		}
	}
	return found
}

// checkLeftovers fails the test if containers still run endLimit after it.
func (c *Cluster) checkLeftovers() {
	if c.ResourceManager == nil {
		return
	}
	left := c.Containers("")
	for end := time.Now().Add(endLimit); len(left) > 0 && time.Now().Before(end) &&
		!c.t.Failed(); left = c.Containers("") {
		time.Sleep(50 * time.Millisecond)
	}
	for pid, command := range left {
		c.t.Errorf("a container's process is left: %d %s", pid, command)
	}
}

// KillContainer kills a process of Containers whose NodeManager was killed and cannot do it.
func (c *Cluster) KillContainer(pid int) {
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		c.t.Errorf("kill the container's process %d: %v", pid, err)
	}
}

// killLeftovers kills the processes that checkLeftovers found; their NodeManagers have ended by now.
func (c *Cluster) killLeftovers() {
	for pid := range c.Containers("") {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended meanwhile
	}
}

package slot

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// unlockedAge is the age after which a folder without a lock is removed: the process that created it was
// killed.
const unlockedAge = time.Hour

// hostPrefix is the prefix of the names of folders that agents share.
const hostPrefix = "host-"

// hostFolder returns the folder that agents of a cluster share, identified by identity: the agents of one
// host with the same resource limits and the same process and network namespaces. If the engine isolates an
// executor, killing it ends only the processes in that executor.
func hostFolder(base, identity string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00", identity)
	limits, _ := os.ReadFile("/proc/self/cgroup") // empty for all agents if there are none
	sum.Write(limits)
	for _, namespace := range []string{"pid", "mnt", "net", "ipc", "user"} {
		link, _ := os.Readlink("/proc/self/ns/" + namespace)
		fmt.Fprintf(sum, "\x00%s", link)
	}
	return filepath.Join(base, hostPrefix+hex.EncodeToString(sum.Sum(nil))[:12])
}

// agentFolder creates a folder for one agent, and removes those of killed agents.
func agentFolder(base string) (string, error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return "", fmt.Errorf("look for folders that killed agents left: %w", err)
	}
	for _, e := range entries {
		path := filepath.Join(base, e.Name())
		switch {
		case strings.HasPrefix(e.Name(), "agent-"), strings.HasPrefix(e.Name(), hostPrefix):
			sweepAgent(path)
		case strings.HasPrefix(e.Name(), "slot-"):
			sweepSlot(path)
		}
	}
	folder, err := os.MkdirTemp(base, "agent-")
	if err != nil {
		return "", fmt.Errorf("make the agent's folder: %w", err)
	}
	return folder, nil
}

// sweepAgent removes the folder of an agent that was killed, whose lock is free. A folder without a lock is
// being created.
func sweepAgent(path string) {
	alive, err := os.Open(filepath.Join(path, "alive"))
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > unlockedAge {
			os.RemoveAll(path)
		}
		return
	}
	if err != nil {
		return
	}
	defer alive.Close()
	if lockfile.Try(alive, lockfile.Exclusive) == nil {
		os.RemoveAll(path)
	}
}

// sweepSlot removes a slot whose executor has ended.
func sweepSlot(path string) {
	parts := strings.Split(filepath.Base(path), "-")
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		_ = os.Remove(path) // another agent may have removed it
	}
}

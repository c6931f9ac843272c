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

	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// neverLocked is how old a folder is that no agent locked: whoever made it was killed.
const neverLocked = time.Hour

// hostPrefix begins the names of folders that agents share.
const hostPrefix = "host-"

// hostFolder is the folder that the agents of the cluster with an identity share: those of one host that
// live within the same limits and see the same processes and networks. An engine that
// keeps executors apart from one another ends what is in one of them alone.
func hostFolder(base, identity string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\x00", identity)
	limits, _ := os.ReadFile("/proc/self/cgroup") // the same nothing for all, where there are none
	sum.Write(limits)
	for _, namespace := range []string{"pid", "mnt", "net", "ipc", "user"} {
		link, _ := os.Readlink("/proc/self/ns/" + namespace)
		fmt.Fprintf(sum, "\x00%s", link)
	}
	return filepath.Join(base, hostPrefix+hex.EncodeToString(sum.Sum(nil))[:12])
}

// agentFolder makes a folder for one agent, and removes what killed agents left.
func agentFolder(base string) (string, error) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return "", fmt.Errorf("look for what killed agents left: %w", err)
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

// sweepAgent removes the folder of an agent that was killed: nobody holds its lock. One
// without a lock is being made.
func sweepAgent(path string) {
	alive, err := os.Open(filepath.Join(path, "alive"))
	if errors.Is(err, fs.ErrNotExist) {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > neverLocked {
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

// sweepSlot removes a slot whose executor is no more.
func sweepSlot(path string) {
	parts := strings.Split(filepath.Base(path), "-")
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err == nil && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		_ = os.Remove(path) // another may have
	}
}

package slot

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxAncestors bounds the search for the executor's JVM among our ancestors: a shell, Python's worker and its
// daemon may be between.
const maxAncestors = 4

// findExecutor returns the process of the Spark executor, a JVM: pid itself or one of its ancestors.
func findExecutor(pid int) (executor int, found bool) {
	for range maxAncestors {
		if pid <= 1 {
			return 0, false
		}
		program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil {
			return 0, false
		}
		if strings.HasPrefix(filepath.Base(program), "java") {
			return pid, true
		}
		if pid, err = parentOf(pid); err != nil {
			return 0, false
		}
	}
	return 0, false
}

// parentOf reads the fourth field of /proc/PID/stat (proc(5)). The second field, a name in parentheses, may
// contain any characters.
func parentOf(pid int) (int, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read the state of process %d: %w", pid, err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read the state of process %d: the system describes it as %q", pid, stat)
	}
	return strconv.Atoi(fields[1])
}

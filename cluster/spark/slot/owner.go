package slot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/internal/proc"
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
		stat, ok := proc.Read(pid)
		if !ok {
			return 0, false
		}
		pid = stat.Parent
	}
	return 0, false
}

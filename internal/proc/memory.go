package proc

import (
	"fmt"
	"os"
	"strings"
)

// TotalMemory returns this machine's memory in bytes; 0 if it cannot be read.
func TotalMemory() int64 {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(raw)) {
		var kib int64
		if n, err := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 && err == nil {
			return kib << 10
		}
	}
	return 0
}

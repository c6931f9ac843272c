package render

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// FailureDetail is what follows the first line of a failure.
func FailureDetail(f *clusterpb.Failure) []string {
	var lines []string
	tail := f.GetLines()
	if f.GetTraceback() != "" {
		tail = strings.Split(strings.TrimRight(f.GetTraceback(), "\n"), "\n")
	}
	const most = 20
	if cut := len(tail) - most; cut > 0 {
		lines = append(lines, fmt.Sprintf("  … %d lines above", cut))
		tail = tail[cut:]
	}
	for _, l := range tail {
		lines = append(lines, "  "+l)
	}
	if n := len(f.GetEchoes()); n > 0 {
		lines = append(lines, fmt.Sprintf("After it, because of it: %s", ShortList(f.GetEchoes(), 8)))
	}
	if f.GetRemedy() != "" {
		lines = append(lines, "Next: "+f.GetRemedy())
	}
	return lines
}

// ShortList is items in one line, at most that many of them.
func ShortList(items []string, most int) string {
	if len(items) <= most {
		return strings.Join(items, ", ")
	}
	return strings.Join(items[:most], ", ") + fmt.Sprintf(" and %d more", len(items)-most)
}

package rundir

import (
	"testing"
)

func TestRunNumber(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int32{
		"run-001": 1, "run-999": 999, "run-1000": 1000, "run-1001": 1001, "run-2147483647": 2147483647,
		"run-000": 0, "run-1": 0, "run-0001": 0, "run-001.old": 0, "run-+01": 0, "run--01": 0, "run-": 0, "001": 0,
		"run-2147483648": 0, "": 0,
	} {
		if got, ok := Number(name); got != want && ok || ok != (want > 0) {
			t.Errorf("RunNumber(%q) = %d, %v, want %d", name, got, ok, want)
		}
	}
}

// TestBelow: a folder whose name begins with another's is not inside it.
func TestBelow(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, dir, rest string
		ok              bool
	}{
		{"/a/runs/run-001/logs", "/a/runs", "run-001/logs", true},
		{"/a/runs", "/a/runs/", "", true},
		{"/a/runs2/logs", "/a/runs", "", false},
		{"hdfs://nn:8020/runs2/logs", "hdfs://nn:8020/runs", "", false},
		{"hdfs://nn:8020/run-001", "hdfs://nn:8020/", "run-001", true},
		{"/b", "/a", "", false},
	} {
		if rest, ok := Below(tt.name, tt.dir); rest != tt.rest || ok != tt.ok {
			t.Errorf("Below(%q, %q) = %q, %v", tt.name, tt.dir, rest, ok)
		}
	}
}

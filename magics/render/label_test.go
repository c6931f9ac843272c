package render

import "testing"

// TestFirstTask: the hint behind a line that several tasks wrote names a task of which logs
// has lines.
func TestFirstTask(t *testing.T) {
	t.Parallel()
	for label, want := range map[string]string{
		"worker:1": "worker:1", "worker:0-3 ×4": "worker:0", "worker:7-8,10,ps:0-1 ×5": "worker:7",
		"chief,worker:0,2 ×3": "chief:0", "my-role:2,4-5 ×3": "my-role:2",
		"container_1_0001_01_000002": "container_1_0001_01_000002",
	} {
		if got := firstTask(label); got != want {
			t.Errorf("the first task of %q is %q, not %q", label, got, want)
		}
	}
}

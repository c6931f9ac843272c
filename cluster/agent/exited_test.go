package agent

import (
	"strings"
	"testing"
)

// TestExitedSaysHowManyLines: the word of a task's end says how many lines it wrote, and
// whether what it left running may write more.
func TestExitedSaysHowManyLines(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, program string
		lines         uint64
		open          bool
		last          string
	}{
		{"all of them", "for i in range(500): print('line', i)\n", 500, false, "line 499"},
		{"none", "pass\n", 0, false, ""},
		{"a process is left", "import subprocess\nprint('its own', flush=True)\n" +
			// exec: a shell that outlives its sleep by a moment writes "Killed".
			"subprocess.Popen(['sh', '-c', 'sleep 1; echo from behind; exec sleep 60'])\n", 1, true, "from behind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := bare(t)
			c.prepare(1, 0)
			c.launch(c.cell(1, tt.program))
			if x := c.exited(1); x.GetLines() != tt.lines || x.GetOpen() != tt.open {
				t.Errorf("%d lines, open %v: want %d, %v", x.GetLines(), x.GetOpen(), tt.lines, tt.open)
			}
			if text := strings.TrimSuffix(c.text(1), "\n"); !strings.HasSuffix(text, tt.last) {
				t.Errorf("the last of %q is not %q", text, tt.last)
			}
		})
	}
}

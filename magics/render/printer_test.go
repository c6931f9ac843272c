package render

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// gathering is a Writer that gathers text until Flush.
type gathering struct {
	gathered string
	sent     []string
}

func (g *gathering) Stdout(text string) { g.gathered += text }
func (g *gathering) Stderr(text string) { g.gathered += text }

func (g *gathering) Flush() {
	g.sent = append(g.sent, g.gathered)
	g.gathered = ""
}

// TestBurstIsSent: a Writer that gathers text sends a burst at its end, and once.
func TestBurstIsSent(t *testing.T) {
	t.Parallel()
	out := &gathering{}
	p := NewPrinter(out, func(command string) string { return command }, 0)
	p.Burst(nil)
	p.Burst(&clusterpb.Lines{Head: []*clusterpb.Line{
		{Task: "worker:0", Text: "one"}, {Task: "worker:0", Text: "two", Stream: clusterpb.Line_STDERR},
	}, Skipped: 3, Tail: []*clusterpb.Line{{Task: "worker:0", Text: "six"}}})
	const want = "[worker:0] one\n[worker:0] two\n… 3 lines in between: logs\n[worker:0] six\n"
	if len(out.sent) != 1 || out.sent[0] != want {
		t.Errorf("it sends %q", out.sent)
	}
}

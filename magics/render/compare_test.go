package render

import (
	"strings"
	"testing"
	"unicode"

	"github.com/tfcluster/tfcluster/cluster/manifest"
)

// TestComparisonsWithoutControlCharacters: a terminal obeys nothing that a program, its arguments or its environment
// have.
func TestComparisonsWithoutControlCharacters(t *testing.T) {
	t.Parallel()
	const hostile = "a\x1b[2Jb\u009b1m\tc"
	change := []manifest.Change{{Kind: "environment", Name: hostile, Before: hostile, After: ""}}
	for name, view := range map[string]Bundle{
		"diff": DiffView(&manifest.Diff{
			Runs: []int32{1, 2}, Changes: change, Results: change, Sources: map[string]string{hostile: "-" + hostile + "\n+\n"},
		}),
		"comparison": ComparisonView(&manifest.Comparison{
			Rows: []manifest.Row{{Program: hostile, Differing: map[string]string{hostile: hostile}}}, Columns: []string{hostile},
			Metrics: []string{hostile},
		}),
	} {
		if at := strings.IndexFunc(view.Text, func(r rune) bool { return unicode.IsControl(r) && r != '\n' }); at >= 0 ||
			!strings.Contains(view.Text, "a\ufffd[2Jb\ufffd1m c") {
			t.Errorf("%s, at %d: %q", name, at, view.Text)
		}
	}
}

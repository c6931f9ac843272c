package magics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/magics/verbs"
)

// TestReference: docs/verbs.md is what the table of commands says.
func TestReference(t *testing.T) {
	t.Parallel()
	table := verbs.NewSet(engines()).Table
	var b strings.Builder
	b.WriteString("# Verbs and options\n\nMade from the table of commands by `go test ./magics -run TestReference " +
		"-update`. In a notebook, `%tfcluster VERB ?`\nshows the same, in a shell `tfcluster help VERB`.\n")
	for i := range table.Verbs {
		v := &table.Verbs[i]
		text, err := table.VerbUsage(v.Name, !v.Magic)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString("\n## " + v.Name + "\n\n```\n" + strings.TrimRight(text, "\n") + "\n```\n")
	}
	file := filepath.Join("..", "docs", "verbs.md")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(file); err != nil || string(have) != b.String() {
		t.Errorf("%s differs (go test ./magics -run TestReference -update writes it anew): %v", file, err)
	}
}

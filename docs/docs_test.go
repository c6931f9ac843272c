package docs

import (
	"strings"
	"testing"
)

// TestTopics: every section has a text of its own, without the heading of the next one.
func TestTopics(t *testing.T) {
	t.Parallel()
	var names []string
	for line := range strings.Lines(errorsPage) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	if len(names) < 10 {
		t.Fatalf("sections: %v", names)
	}
	for _, name := range names {
		text, ok := Topic(name)
		if !ok || len(text) < 40 || strings.Contains(text, "## ") {
			t.Errorf("section %s: %v, %q", name, ok, text)
		}
	}
	if text, ok := Topic("nosuch"); ok {
		t.Errorf("a section that does not exist has the text %q", text)
	}
}

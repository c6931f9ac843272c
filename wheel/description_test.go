package wheel_test

import (
	"regexp"
	"strings"
	"testing"
)

// TestDescription: the text that an index shows has no link to a file of the sources, which would lead nowhere.
func TestDescription(t *testing.T) {
	t.Parallel()
	_, text, found := strings.Cut(string(read(t, open(t, wheel(t)), "/METADATA")), "\n\n")
	if !found || !strings.HasPrefix(text, "# tfcluster\n") {
		t.Fatalf("METADATA has no description, but %.100q", text)
	}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAllString(text, "") // code has no links
	link := regexp.MustCompile(`\]\(([^)\s]*)|\]:\s*(\S+)|(?:src|href)\s*=\s*["']?([^"'\s>]*)`)
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if to := m[1] + m[2] + m[3]; !strings.HasPrefix(to, "https://") && !strings.HasPrefix(to, "#") {
			t.Errorf("the description has a link to %s", to)
		}
	}
	for _, file := range []string{"docs/", "notebooks/", ".ipynb", "make "} {
		if strings.Contains(text, file) {
			t.Errorf("the description names %s, which is not installed", file)
		}
	}
	for _, extra := range []string{"`tensorflow`", "`spark`", "`torch`", "`jax`"} {
		if !strings.Contains(text, extra) {
			t.Errorf("the description does not name the extra %s", extra)
		}
	}
}

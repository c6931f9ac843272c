// Package docs has the pages that the program shows itself.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed errors.md
var errorsPage string

// Topics returns the names of the sections of errors.md, in its order.
func Topics() []string {
	var names []string
	for line := range strings.Lines(errorsPage) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// Topic returns the text of a section of errors.md without its heading, and false if there is none of that name.
func Topic(name string) (string, bool) {
	_, text, found := strings.Cut(errorsPage, "\n## "+name+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text) + "\n", found
}

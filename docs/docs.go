// Package docs has the pages that the program shows itself.
package docs

import (
	_ "embed"
	"strings"
)

//go:embed errors.md
var errorsPage string

// Topic returns the text of a section of errors.md without its heading, and false if there is none of that name.
func Topic(name string) (string, bool) {
	_, text, found := strings.Cut(errorsPage, "\n## "+name+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	return strings.TrimSpace(text) + "\n", found
}

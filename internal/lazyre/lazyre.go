// Package lazyre compiles regular expressions when they are first needed: most processes start often, and need few.
package lazyre

import (
	"regexp"
	"sync"
)

// New returns a function that returns the compiled expression. That panics, when first called, if it is malformed.
func New(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}

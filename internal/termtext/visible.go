package termtext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns valid UTF-8 text in which each character but line ends is shown: a terminal obeys control characters
// of a program's source or variables, and a page shows text in another order behind a bidirectional control. A tab
// becomes a space, any other invisible character U+FFFD.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case !unicode.IsGraphic(r) && r != '\n':
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

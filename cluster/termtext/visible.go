package termtext

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns valid UTF-8 text without control characters but line ends: a terminal would obey those of a program's
// source, its stacks or its variables. A tab becomes a space, another one U+FFFD.
func Visible(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r) && r != '\n':
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

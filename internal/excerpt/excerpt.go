// Package excerpt shortens program output for messages.
package excerpt

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine returns text as one line that is valid UTF-8 and safe for a terminal: characters that
// are not graphic become spaces.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

// WholeRunes returns the length of the longest prefix of b that does not cut a rune; len(b) if
// b is not UTF-8.
func WholeRunes(b []byte) int {
	for back := 1; back <= utf8.UTFMax && back < len(b); back++ {
		start := len(b) - back
		if !utf8.RuneStart(b[start]) {
			continue
		}
		if utf8.FullRune(b[start:]) {
			return len(b)
		}
		return start
	}
	return len(b)
}

// MaxLastLine is the maximum length of LastLine's result, in bytes.
const MaxLastLine = 1000

// LastLine returns the last line of a log, at most MaxLastLine bytes, for an error message; ""
// if it cannot be read.
func LastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	const most = 64 << 10
	if info, err := f.Stat(); err == nil && info.Size() > most {
		if _, err := f.Seek(-most, io.SeekEnd); err != nil {
			return ""
		}
	}
	content, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	last := OneLine(lines[len(lines)-1])
	if len(last) > MaxLastLine {
		last = last[:WholeRunes([]byte(last[:MaxLastLine]))] + "…"
	}
	return last
}

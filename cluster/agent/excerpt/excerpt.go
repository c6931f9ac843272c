// Package excerpt shortens texts that programs wrote, for messages to people.
package excerpt

import (
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"
)

// OneLine is text of others' making as a message can hold it and a terminal may be
// given it: valid, and what is no character is a space.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsGraphic(r) {
			return r
		}
		return ' '
	}, strings.ToValidUTF8(text, "\uFFFD"))
	return strings.Join(strings.Fields(text), " ")
}

// WholeRunes is the length of the longest start of b that does not cut a rune,
// or len(b) where b is no text.
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

// MaxLastLine bounds what an error shows of a log, in bytes.
const MaxLastLine = 1000

// LastLine returns the last line of a log, of MaxLastLine bytes at most, for an error message; ""
// where there is none.
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

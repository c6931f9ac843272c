package command

import (
	"strings"
	"unicode"
)

// Inspect returns the help for the magic under the cursor, for Shift-Tab and
// %tfcluster VERB?; nil if the line is not a magic of ours.
func (t *Table) Inspect(code string, cursor int, shell bool) map[string]any {
	before, ok := magicAt(code, wordEnd(code, cursor))
	if !ok {
		after, mine := magicLine(strings.TrimSpace(code), "%")
		if !mine || strings.Trim(after, "? ") != "" {
			return nil
		}
	}
	text := t.Usage(shell)
	if words := strings.Fields(before); len(words) > 0 {
		if usage, err := t.VerbUsage(strings.TrimRight(words[0], "?"), shell); err == nil {
			text = usage
		}
	}
	return map[string]any{"text/plain": text}
}

// wordEnd returns the position of the end of the word at the cursor.
func wordEnd(code string, cursor int) int {
	runes := []rune(code)
	cursor = max(cursor, 0)
	for cursor < len(runes) && !unicode.IsSpace(runes[cursor]) {
		cursor++
	}
	return cursor
}

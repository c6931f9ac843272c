package command

import (
	"strings"
	"unicode"
)

// Inspect is the help for the magic under the cursor, as Shift-Tab and
// %tfcluster VERB? show it; nil where the line is not ours.
func (t *Table) Inspect(code string, cursor int, shell bool) map[string]any {
	before, ok := magicAt(code, wordEnd(code, cursor))
	if !ok {
		text := strings.TrimSpace(code)
		if after, mine := magicLine(text, "%"); mine && strings.Trim(after, "? ") == "" {
			return map[string]any{"text/plain": t.Usage(shell)}
		}
		return nil
	}
	words := strings.Fields(before)
	if len(words) == 0 {
		return map[string]any{"text/plain": t.Usage(shell)}
	}
	text, err := t.VerbUsage(strings.TrimRight(words[0], "?"), shell)
	if err != nil {
		return map[string]any{"text/plain": t.Usage(shell)}
	}
	return map[string]any{"text/plain": text}
}

// wordEnd moves the cursor to the end of the word it stands in.
func wordEnd(code string, cursor int) int {
	runes := []rune(code)
	cursor = max(cursor, 0)
	for cursor < len(runes) && !unicode.IsSpace(runes[cursor]) {
		cursor++
	}
	return cursor
}

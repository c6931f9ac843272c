package command

import (
	"strings"
)

// script is a cell made of magics alone.
type script struct {
	Lines   []string // what follows %tfcluster, a logical line each
	Body    string   // of %%tfcluster
	HasBody bool
}

// MagicName is what a line of ours begins with, after %.
const MagicName = "tfcluster"

// ReadCell takes a cell apart when every line of it is %tfcluster, blank or a
// comment, or when it begins with %%tfcluster. Any other cell is Python's.
func ReadCell(code string) (script, bool) {
	code = strings.ReplaceAll(code, "\r\n", "\n")
	var s script
	rest := code
	for rest != "" {
		var line string
		line, rest = logicalLine(rest)
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		if after, ok := magicLine(text, "%%"); ok && len(s.Lines) == 0 {
			s.Lines, s.Body, s.HasBody = []string{after}, rest, true
			if strings.HasSuffix(strings.TrimSpace(after), "?") && strings.TrimSpace(rest) == "" {
				s.HasBody = false
			}
			return s, true
		}
		if strings.HasPrefix(text, "#") {
			continue
		}
		after, ok := magicLine(text, "%")
		if !ok {
			return script{}, false
		}
		s.Lines = append(s.Lines, after)
	}
	return s, len(s.Lines) > 0
}

// logicalLine cuts the first line off, with those that \ continues it on.
func logicalLine(code string) (line, rest string) {
	at := 0
	for {
		end := strings.IndexByte(code[at:], '\n')
		if end < 0 {
			return code, ""
		}
		end += at
		n := 0
		for end-n > at && code[end-n-1] == '\\' {
			n++
		}
		if n%2 == 0 || strings.HasPrefix(strings.TrimSpace(code[at:end]), "#") {
			return code[:end], code[end+1:]
		}
		at = end + 1
	}
}

// magicLine gives what follows %tfcluster. %tfcluster? and ?%tfcluster ask for help.
func magicLine(text, mark string) (after string, ok bool) {
	if asked, found := strings.CutPrefix(text, "?"); found {
		after, ok := magicLine(strings.TrimLeft(asked, "? "), mark)
		return after + " ?", ok
	}
	after, ok = strings.CutPrefix(text, mark+MagicName)
	if !ok {
		return "", false
	}
	if after == "" || strings.ContainsAny(after[:1], " \t\\?") {
		return after, true
	}
	return "", false
}

// IsNow is whether a line runs at once: --now on a verb that allows it.
func (t *Table) IsNow(line string) bool {
	words, err := lex(line, false)
	if err != nil || len(words) == 0 {
		return false
	}
	name, _ := words[0].literal()
	v := t.Verb(name)
	if v == nil || !v.Now {
		return false
	}
	for _, w := range words[1:] {
		if text, _ := w.literal(); text == "--now" && !w.quoted {
			return true
		}
	}
	return false
}

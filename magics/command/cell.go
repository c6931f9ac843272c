package command

import (
	"strings"
)

// script is the content of a cell that consists of magics alone.
type script struct {
	lines []string // the text after %tfcluster, one entry per logical line
	body  *string  // of %%tfcluster; nil: none
}

// magicName is the name of our magic, after %.
const magicName = "tfcluster"

// readCell parses a cell in which every line is %tfcluster, blank or a comment, or which begins
// with %%tfcluster. ok is false for any other cell, which is for Python.
func readCell(code string) (script, bool) {
	var s script
	rest := strings.ReplaceAll(code, "\r\n", "\n")
	for rest != "" {
		var line string
		line, rest = logicalLine(rest)
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		if after, ok := magicLine(text, "%%"); ok && len(s.lines) == 0 {
			s.lines = []string{after}
			if !strings.HasSuffix(strings.TrimSpace(after), "?") || strings.TrimSpace(rest) != "" {
				s.body = &rest
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
		s.lines = append(s.lines, after)
	}
	return s, len(s.lines) > 0
}

// logicalLine returns the first line with its \ continuations, and the rest.
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

// magicLine returns the text after %tfcluster. %tfcluster? and ?%tfcluster ask for help.
func magicLine(text, mark string) (after string, ok bool) {
	if asked, found := strings.CutPrefix(text, "?"); found {
		after, ok := magicLine(strings.TrimLeft(asked, "? "), mark)
		return after + " ?", ok
	}
	after, ok = strings.CutPrefix(text, mark+magicName)
	if !ok {
		return "", false
	}
	if after == "" || strings.ContainsAny(after[:1], " \t\\?") {
		return after, true
	}
	return "", false
}

package command

import (
	"context"
	"slices"
	"strings"
)

// Plan is a parsed cell of magics: the kernel asks it when the cell is to run, and passes it to
// the session.
type Plan struct {
	Now   bool // every line has --now: the cell runs at once
	Hint  bool // every line could have --now
	Lines []*Line
}

// Line is a parsed magic whose names and expressions are not expanded yet.
type Line struct {
	text  string
	body  *string // of a cell magic
	words []word
	now   bool  // it has --now, and its verb allows that
	hint  bool  // its verb allows --now
	err   error // a syntax error, reported when the line runs
}

// Read parses a cell that consists of magics alone; nil means that the cell is for Python. It is
// fast and calls nobody, since the kernel calls it for every cell.
func (t *Table) Read(code string) *Plan {
	if !strings.Contains(code, "%"+magicName) {
		return nil
	}
	cell, ok := readCell(code)
	if !ok {
		return nil
	}
	p := &Plan{Now: true, Hint: true}
	for _, text := range cell.lines {
		l := t.Line(text, cell.body)
		p.Now, p.Hint = p.Now && l.now, p.Hint && l.hint
		p.Lines = append(p.Lines, l)
	}
	return p
}

// Line parses the text after %tfcluster; body is the body of a cell magic. Nothing in a line with
// --now is expanded, so that it works while Python is busy or dead.
func (t *Table) Line(text string, body *string) *Line {
	l := &Line{text: text, body: body}
	l.words, l.err = lex(text, false)
	if l.err == nil && len(l.words) > 0 {
		name, _ := l.words[0].literal()
		v := t.Verb(name)
		l.hint = v != nil && v.Now
		l.now = l.hint && slices.ContainsFunc(l.words[1:], func(w word) bool {
			given, _ := w.literal()
			return given == "--now" && !w.quoted
		})
	}
	if !l.now && strings.ContainsAny(text, "{}$") {
		l.words, l.err = lex(text, true)
	}
	return l
}

// Command expands a line by names and parses it. shell: the line is from the command line,
// which has other verbs.
func (t *Table) Command(ctx context.Context, l *Line, names Expander, shell bool) (*Command, error) {
	if asked, ok := helpAsked(l.text); ok {
		return &Command{Verb: t.Help(), Words: asked}, nil
	}
	if l.err != nil {
		return nil, &UsageError{Text: l.err.Error()}
	}
	words, err := tokens(ctx, l.words, names)
	if err != nil {
		return nil, err
	}
	c, err := t.parse(words, l.body, shell)
	if err != nil {
		return nil, err
	}
	c.Typed = true
	return c, nil
}

// helpAsked recognises "VERB ?", "VERB?" and "VERB --help" without expansion.
func helpAsked(line string) ([]string, bool) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || asksHelp(words[0]):
		return nil, true
	case len(words) == 1 && strings.HasSuffix(words[0], "?"):
		return []string{strings.TrimRight(words[0], "?")}, true
	case len(words) == 2 && asksHelp(words[1]):
		return words[:1], true
	}
	return nil, false
}

func asksHelp(word string) bool { return strings.Trim(word, "?") == "" || IsHelp(word) }

// IsHelp reports whether a word is the option that asks for help.
func IsHelp(word string) bool { return word == "--help" || word == "-h" || word == "-help" }

package command

import (
	"context"
	"slices"
	"strings"
)

// Plan is a cell of ours, read once: for the kernel, which asks when it is to run, and for
// whoever runs it.
type Plan struct {
	Now   bool // every line says --now: the cell runs at once
	Hint  bool // every line might say so
	Lines []*Line
}

// Line is a magic, read; its names and expressions are not expanded yet.
type Line struct {
	text  string
	body  *string // of a cell magic
	words []word
	now   bool  // it says --now, on a verb that allows that
	hint  bool  // its verb allows that
	err   error // it cannot be read, which is said when it runs
}

// Read reads a cell that is made of magics alone; nil is a cell of Python's. It asks nobody and is
// quick: the kernel calls it for every cell.
func (t *Table) Read(code string) *Plan {
	if !strings.Contains(code, "%"+magicName) {
		return nil
	}
	cell, ok := readCell(code)
	if !ok {
		return nil
	}
	var body *string
	if cell.hasBody {
		body = &cell.body
	}
	p := &Plan{Now: true, Hint: true}
	for _, text := range cell.lines {
		l := t.Line(text, body)
		p.Now, p.Hint = p.Now && l.now, p.Hint && l.hint
		p.Lines = append(p.Lines, l)
	}
	return p
}

// Line reads what follows %tfcluster; body is a cell magic's. A --now line is taken as it stands:
// it works while Python is busy or dead.
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

// Command understands a line, names giving what it is to be expanded by. shell is the command
// line, which has other verbs.
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

// helpAsked recognises "VERB ?", "VERB?" and "VERB --help" before anything is expanded.
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

// IsHelp returns whether a word is the option that asks for help.
func IsHelp(word string) bool { return word == "--help" || word == "-h" || word == "-help" }

package command

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// segment is a part of a word: literal text, or a name or an expression to expand.
type segment struct {
	kind segmentKind
	text string // the literal, the name or the expression
}

type segmentKind int

const (
	segLiteral segmentKind = iota
	segName                // $name
	segExpr                // {expr}
)

// word is a word of a line without its quotes.
type word struct {
	segments []segment
	quoted   bool // part of it was quoted: it is neither help nor a comment
}

// literal returns the text of the word; ok is false if a part must be expanded.
func (w word) literal() (string, bool) {
	var b strings.Builder
	for _, s := range w.segments {
		if s.kind != segLiteral {
			return "", false
		}
		b.WriteString(s.text)
	}
	return b.String(), true
}

// lexer splits one logical line: shell quoting, # comments, \ continuation.
type lexer struct {
	in     string
	at     int
	expand bool

	words []word
	word  *word           // nil between words
	text  strings.Builder // literal text not yet in word
}

// lex splits a line into words. With expand, {expr} and $name outside single quotes are segments
// to expand, and {{, }} and $$ are the characters {, } and $.
func lex(line string, expand bool) ([]word, error) {
	l := &lexer{in: line, expand: expand}
	for l.at < len(l.in) {
		if err := l.step(); err != nil {
			return nil, err
		}
		if l.word == nil && strings.HasPrefix(l.in[l.at:], "#") {
			l.comment()
		}
	}
	l.endWord()
	return l.words, nil
}

func (l *lexer) comment() {
	line, _, _ := strings.Cut(l.in[l.at:], "\n")
	l.at += len(line)
}

func (l *lexer) begin() {
	if l.word == nil {
		l.word = &word{}
	}
}

func (l *lexer) flush() {
	if l.text.Len() > 0 {
		l.word.segments = append(l.word.segments, segment{segLiteral, l.text.String()})
		l.text.Reset()
	}
}

func (l *lexer) endWord() {
	if l.word == nil {
		return
	}
	l.flush()
	l.words = append(l.words, *l.word)
	l.word = nil
}

// step reads the next character outside quotes, or a whole quotation.
func (l *lexer) step() error {
	r, size := utf8.DecodeRuneInString(l.in[l.at:])
	switch {
	case unicode.IsSpace(r):
		l.endWord()
		l.at += size
		return nil
	case r == '#' && l.word == nil:
		l.comment()
		return nil
	case r == '\\':
		return l.escape()
	case r == '\'':
		return l.single()
	case r == '"':
		return l.double()
	}
	l.begin()
	return l.plain()
}

func (l *lexer) escape() error {
	rest := l.in[l.at+1:]
	switch {
	case strings.HasPrefix(rest, "\r\n"):
		l.at += 3
	case strings.HasPrefix(rest, "\n"):
		l.at += 2
	case rest == "":
		return errors.New(`the line ends with \, but no line follows that it could continue: remove the \`)
	default:
		l.begin()
		_, size := utf8.DecodeRuneInString(rest)
		l.text.WriteString(rest[:size])
		l.at += 1 + size
	}
	return nil
}

func (l *lexer) single() error {
	l.begin()
	l.word.quoted = true
	end := strings.IndexByte(l.in[l.at+1:], '\'')
	if end < 0 {
		return errors.New(`a ' is not closed: end the text with a second ', or write \' for the character`)
	}
	l.text.WriteString(l.in[l.at+1 : l.at+1+end])
	l.at += end + 2
	return nil
}

func (l *lexer) double() error {
	l.begin()
	l.word.quoted = true
	l.at++
	for l.at < len(l.in) {
		switch c := l.in[l.at]; {
		case c == '"':
			l.at++
			return nil
		case c == '\\' && l.at+1 < len(l.in) && strings.IndexByte("\"\\\n$`", l.in[l.at+1]) >= 0:
			if l.in[l.at+1] != '\n' {
				l.text.WriteByte(l.in[l.at+1])
			}
			l.at += 2
		default:
			if err := l.plain(); err != nil {
				return err
			}
		}
	}
	return errors.New(`a " is not closed: end the text with a second ", or write \" for the character`)
}

// plain reads a character without a meaning for quoting, or an expansion.
func (l *lexer) plain() error {
	rest := l.in[l.at:]
	if l.expand {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"), strings.HasPrefix(rest, "$$"):
			l.text.WriteByte(rest[0])
			l.at += 2
			return nil
		case rest[0] == '$':
			if name := identifier(rest[1:]); name != "" {
				l.cut(segment{segName, name}, 1+len(name))
				return nil
			}
		case rest[0] == '{':
			expr, size, err := braces(rest)
			if err != nil {
				return err
			}
			l.cut(segment{segExpr, expr}, size)
			return nil
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	l.text.WriteString(rest[:size])
	l.at += size
	return nil
}

func (l *lexer) cut(s segment, size int) {
	l.flush()
	l.word.segments = append(l.word.segments, s)
	l.at += size
}

// identifier returns the Python identifier at the start of s, or "".
func identifier(s string) string {
	for i, r := range s {
		if r == '_' || unicode.IsLetter(r) || (i > 0 && (unicode.IsDigit(r) || unicode.Is(unicode.Mn, r))) {
			continue
		}
		return s[:i]
	}
	return s
}

// IsIdentifier reports whether s is a Python identifier.
func IsIdentifier(s string) bool { return s != "" && identifier(s) == s }

// braces returns the {expr} at the start of s. Brackets inside it must balance; those in
// Python strings do not count.
func braces(s string) (expr string, size int, err error) {
	depth := 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '{', '[', '(':
			depth++
		case ']', ')':
			depth--
		case '\'', '"':
			end := quotation(s[i:])
			if end < 0 {
				return "", 0, errors.New(
					"a string in {…} is not closed: close it. For the character { write {{, or use single quotes")
			}
			i += end - 1
		case '}':
			if depth--; depth > 0 {
				continue
			}
			expr := strings.TrimSpace(s[1:i])
			if expr == "" {
				return "", 0, errors.New("{} contains no expression: write one. For the character { write {{, or use single quotes")
			}
			return expr, i + 1, nil
		}
		if depth <= 0 {
			break
		}
	}
	return "", 0, errors.New(
		"a { is not closed: write } after the expression. For the character { write {{, or use single quotes")
}

// quotation returns the length of the Python string at the start of s, or -1.
func quotation(s string) int {
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return i + 1
		}
	}
	return -1
}

// Package termtext reads text that a program wrote for a terminal: backspaces, colours, and
// control sequences that move the cursor or erase.
package termtext

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line returns what a terminal shows of one line: backspaces and cursor movements within the
// line are applied, colours and other styles are kept and end with the line, and every other
// control sequence is left out.
func Line(text string) string {
	if !hasControls(text) {
		return text
	}
	s := screen{styles: []style{{}}, index: map[style]uint32{{}: 0}}
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == escape || r == csiRune {
			seq := sequence(text)
			s.control(seq)
			text = text[len(seq):]
			continue
		}
		s.put(r)
		text = text[size:]
	}
	return s.String()
}

// Plain returns a line without its control sequences and control characters, for searching and
// for output that is not a terminal. It expects what Line returned.
func Plain(text string) string {
	if !hasControls(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		if r == escape || r == csiRune {
			text = text[len(sequence(text)):]
			continue
		}
		if !isControl(r) {
			b.WriteRune(r)
		}
		text = text[size:]
	}
	return b.String()
}

// Columns returns how many columns of a terminal a line takes. It expects what Line returned.
func Columns(text string) int {
	n := 0
	for _, r := range Plain(text) {
		n += columnsOf(r)
	}
	return n
}

// Cut returns the start of a line that fits into a number of columns, with its colours ended.
func Cut(text string, columns int) string {
	styled := false
	for rest := text; rest != ""; {
		r, size := utf8.DecodeRuneInString(rest)
		if r == escape {
			seq := sequence(rest)
			styled, rest = seq != reset, rest[len(seq):]
			continue
		}
		if columns -= columnsOf(r); columns < 0 {
			text = text[:len(text)-len(rest)]
			if styled {
				text += reset
			}
			return text
		}
		rest = rest[size:]
	}
	return text
}

// columnsOf is a character's width: two for Chinese, Japanese, Korean and emoji.
func columnsOf(r rune) int {
	switch {
	case unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf):
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60, r >= 0x1f300 && r <= 0x1faff,
		r >= 0x20000 && r <= 0x3fffd:
		return 2
	}
	return 1
}

const (
	escape  = '\x1b'
	csiRune = '\u009b' // the one-character form of ESC [
)

func isControl(r rune) bool {
	return r < ' ' && r != '\t' || r >= 0x7f && r < 0xa0
}

func hasControls(text string) bool {
	return strings.IndexFunc(text, isControl) >= 0
}

// sequence returns the escape sequence at the start of text; all of text where it has no end.
func sequence(text string) string {
	_, n := utf8.DecodeRuneInString(text)
	if n == 1 { // ESC; csiRune has two bytes
		if len(text) == 1 {
			return text
		}
		switch text[1] {
		case '[':
			n = 2
		case ']', 'P', 'X', '^', '_': // a string, which BEL or ESC \ ends
			for i := 2; i < len(text); i++ {
				if text[i] == '\a' {
					return text[:i+1]
				}
				if text[i] == escape {
					return text[:min(i+2, len(text))]
				}
			}
			return text
		default: // intermediate bytes and one final byte
			i := 1
			for i < len(text) && text[i] >= ' ' && text[i] < '0' {
				i++
			}
			if i < len(text) && text[i] < utf8.RuneSelf {
				i++
			}
			return text[:i]
		}
	}
	for i := n; i < len(text); i++ {
		if c := text[i]; c >= '@' && c <= '~' {
			return text[:i+1]
		} else if c < ' ' || c >= 0x7f { // no parameter: the sequence is broken
			return text[:i]
		}
	}
	return text
}

// screen is one line of a terminal.
type screen struct {
	cells  []cell
	at     int // column of the cursor
	now    uint32
	styles []style // by number
	index  map[style]uint32
}

type cell struct {
	r     rune
	style uint32
}

// maxColumn bounds how far a control sequence may move the cursor.
const maxColumn = 1000

func (s *screen) put(r rune) {
	switch {
	case r == '\b':
		s.at = max(0, s.at-1)
		return
	case r == '\r':
		s.at = 0
		return
	case isControl(r):
		return
	}
	for s.at >= len(s.cells) {
		s.cells = append(s.cells, cell{r: ' '})
	}
	s.cells[s.at] = cell{r, s.now}
	s.at++
}

// control applies an escape sequence if it concerns this line.
func (s *screen) control(seq string) {
	body, ok := strings.CutPrefix(seq, "\x1b[")
	if !ok {
		body, ok = strings.CutPrefix(seq, string(csiRune))
	}
	if !ok || body == "" {
		return
	}
	params, final := body[:len(body)-1], body[len(body)-1]
	if final == 'm' {
		s.setStyle(params)
		return
	}
	n, err := strconv.Atoi(params)
	if err != nil && params != "" {
		return
	}
	n = min(n, maxColumn)
	switch final {
	case 'C':
		s.at = min(s.at+max(n, 1), max(len(s.cells), maxColumn))
	case 'D':
		s.at = max(s.at-max(n, 1), 0)
	case 'G':
		s.at = max(n, 1) - 1
	case 'K':
		s.erase(n)
	}
}

// erase clears to the end of the line (0), from its start (1), or all of it (2).
func (s *screen) erase(what int) {
	if what != 1 {
		s.cells = s.cells[:min(s.at, len(s.cells))]
	}
	if what == 1 || what == 2 {
		for i := range s.cells[:min(s.at+1, len(s.cells))] {
			s.cells[i] = cell{r: ' '}
		}
	}
}

// style is how a character looks.
type style struct {
	front, back string // colours as SGR writes them
	on          uint16 // bit n: attribute n, 1 (bold) to 9 (crossed out)
}

func (s *screen) setStyle(params string) {
	if strings.ContainsFunc(params, func(r rune) bool { return (r < '0' || r > '9') && r != ';' && r != ':' }) {
		return // a private sequence
	}
	st := s.styles[s.now].with(strings.Split(strings.ReplaceAll(params, ":", ";"), ";"))
	n, ok := s.index[st]
	if !ok {
		n = uint32(len(s.styles))
		s.styles, s.index[st] = append(s.styles, st), n
	}
	s.now = n
}

// with returns the style after SGR parameters.
func (st style) with(params []string) style {
	for i := 0; i < len(params); i++ {
		n, _ := strconv.Atoi(params[i]) // "" is 0
		switch {
		case n == 0:
			st = style{}
		case n < 10:
			st.on |= 1 << n
		case n == 22:
			st.on &^= 1<<1 | 1<<2
		case n > 22 && n < 30:
			st.on &^= 1 << (n - 20)
		case n == 38 || n == 48:
			length := 0
			if i+1 < len(params) {
				length = map[string]int{"5": 3, "2": 5}[params[i+1]]
			}
			if length == 0 || i+length > len(params) {
				return st
			}
			colour := strings.Join(params[i:i+length], ";")
			if i += length - 1; n == 38 {
				st.front = colour
			} else {
				st.back = colour
			}
		case n == 39:
			st.front = ""
		case n == 49:
			st.back = ""
		case n >= 30 && n < 38 || n >= 90 && n < 98:
			st.front = params[i]
		case n >= 40 && n < 48 || n >= 100 && n < 108:
			st.back = params[i]
		}
	}
	return st
}

// sgr is the sequence that sets the style from the default one.
func (st style) sgr() string {
	var codes []string
	for n := 1; n < 10; n++ {
		if st.on&(1<<n) != 0 {
			codes = append(codes, strconv.Itoa(n))
		}
	}
	for _, colour := range []string{st.front, st.back} {
		if colour != "" {
			codes = append(codes, colour)
		}
	}
	return fmt.Sprintf("\x1b[%sm", strings.Join(codes, ";"))
}

const reset = "\x1b[0m"

// String is the line without the blanks at its end.
func (s *screen) String() string {
	end := len(s.cells)
	for end > 0 && s.cells[end-1].r == ' ' {
		end--
	}
	var b strings.Builder
	var now uint32
	for _, c := range s.cells[:end] {
		if c.style != now {
			if now != 0 {
				b.WriteString(reset)
			}
			if c.style != 0 {
				b.WriteString(s.styles[c.style].sgr())
			}
			now = c.style
		}
		b.WriteRune(c.r)
	}
	if now != 0 {
		b.WriteString(reset)
	}
	return b.String()
}

package termtext

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// TestLine: what a terminal shows of a line, and the same without colours.
func TestLine(t *testing.T) {
	t.Parallel()
	keras := "\x1b[1m12/32\x1b[0m \x1b[32m━━━\x1b[0m\x1b[37m━━\x1b[0m \x1b[1m0s\x1b[0m 3ms/step - loss: 0.5"
	for _, tt := range []struct{ name, text, want, plain string }{
		{"plain", "a\tb é", "a\tb é", "a\tb é"},
		{"backspaces behind a bar", "12/32" + strings.Repeat("\b", 75), "12/32", "12/32"},
		{"a spinner", "work |\b/\b-\bok", "work ok", "work ok"},
		{"backspaces beyond the start", "ab\b\b\b\bcd", "cd", "cd"},
		{"Keras", keras + "   " + strings.Repeat("\b", 40), keras, "12/32 ━━━━━ 0s 3ms/step - loss: 0.5"},
		{"a colour without an end", "\x1b[31mred", "\x1b[31mred\x1b[0m", "red"},
		{"a style that nothing has", "a\x1b[31m\x1b[0mb\x1b[1m", "ab", "ab"},
		{"colours add up", "\x1b[1m\x1b[31ma\x1b[22mb\x1b[39mc", "\x1b[1;31ma\x1b[0m\x1b[31mb\x1b[0mc", "abc"},
		{"256 and true colour", "\x1b[38;5;9;48;2;1;2;3ma\x1b[m", "\x1b[38;5;9;48;2;1;2;3ma\x1b[0m", "a"},
		{"erase to the end", "half done\x1b[4D\x1b[K", "half", "half"},
		{"erase all, from the start", "old\x1b[2K\x1b[1Gnew", "new", "new"},
		{"cursor to the right", "a\x1b[2Cb", "a  b", "a  b"},
		{
			"cursor up, hidden, a title, a link", "\x1b[A\x1b[?25la\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c\x1b(B\x1b7d",
			"abcd", "abcd",
		},
		{"bell and NUL", "a\a\x00b", "ab", "ab"},
		{"a sequence without an end", "a\x1b[31", "a", "a"},
		{"escape alone", "a\x1b", "a", "a"},
		{"a broken sequence", "a\x1b[3é", "aé", "aé"},
		{"far to the right", "a\x1b[99999999Cb", "a" + strings.Repeat(" ", 999) + "b", "a" + strings.Repeat(" ", 999) + "b"},
	} {
		if got := Line(tt.text); got != tt.want {
			t.Errorf("%s: %q shows %q, not %q", tt.name, tt.text, got, tt.want)
		} else if got = Plain(got); got != tt.plain {
			t.Errorf("%s: without colours %q, not %q", tt.name, got, tt.plain)
		}
	}
}

// TestCut: how much of a line fits, and how wide it is.
func TestCut(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text    string
		columns int
		want    string
		wide    int
	}{
		{"abc", 3, "abc", 3},
		{"abc", 2, "ab", 3},
		{"\x1b[31mabc\x1b[0md", 2, "\x1b[31mab\x1b[0m", 4},
		{"\x1b[31mabc\x1b[0md", 3, "\x1b[31mabc\x1b[0m", 4},
		{"━━日本e\u0301", 5, "━━日", 7},
		{"", 0, "", 0},
	} {
		if got, wide := Cut(tt.text, tt.columns), Columns(tt.text); got != tt.want || wide != tt.wide {
			t.Errorf("%d columns of %q are %q, not %q; it has %d, not %d", tt.columns, tt.text, got, tt.want, wide, tt.wide)
		}
	}
}

func FuzzLine(f *testing.F) {
	f.Add("\x1b[1m12/32\x1b[0m \x1b[32m━━━\x1b[0m\b\b\b")
	f.Add("\u009b31m\x1b]0;x\x1b\\\x1b[38;5m")
	f.Fuzz(func(t *testing.T, text string) {
		got := Line(strings.ToValidUTF8(text, "?"))
		if again := Line(got); strings.TrimRight(again, " ") != strings.TrimRight(got, " ") {
			t.Errorf("%q shows %q, and that %q", text, got, again)
		}
		if plain := Plain(got); !utf8.ValidString(got) || hasControls(plain) {
			t.Errorf("%q shows %q, without colours %q", text, got, plain)
		}
	})
}

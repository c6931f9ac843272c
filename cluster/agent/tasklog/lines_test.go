package tasklog

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func split(pieces ...string) []Frame {
	var s Splitter
	var all []Frame
	for _, piece := range pieces {
		all = append(all, s.Write([]byte(piece))...)
	}
	if last, ok := s.Close(); ok {
		all = append(all, last)
	}
	return all
}

func TestSplitter(t *testing.T) {
	t.Parallel()
	line := func(text string) Frame { return Frame{Text: text} }
	bar := func(text string) Frame { return Frame{Text: text, Carriage: true} }
	tests := []struct {
		name   string
		pieces []string
		want   []Frame
	}{
		{"nothing", nil, nil},
		{"lines", []string{"a\nb\n"}, []Frame{line("a"), line("b")}},
		{"no end", []string{"a\nb"}, []Frame{line("a"), line("b")}},
		{"empty lines", []string{"\n\n"}, []Frame{line(""), line("")}},
		{"in pieces", []string{"a", "b\nc", "\n"}, []Frame{line("ab"), line("c")}},
		{"a bar", []string{"1/3\r2/3\r3/3\n"}, []Frame{bar("1/3"), bar("2/3"), line("3/3")}},
		{"crlf is one end", []string{"a\r\nb\r\n"}, []Frame{line("a"), line("b")}},
		{"crlf in pieces", []string{"a\r", "\nb"}, []Frame{line("a"), line("b")}},
		{"a bar's last frame", []string{"1\r"}, []Frame{bar("1")}},
		{"not text", []string{"a\xffb\n"}, []Frame{line("a\uFFFDb")}},
		{"Keras' bar", []string{"\r1/2 \x1b[32m━\x1b[0m" + strings.Repeat("\b", 5), "\b\r2/2 \x1b[32m━━\x1b[0m  \n"}, []Frame{
			bar(""), bar("1/2 \x1b[32m━\x1b[0m"), line("2/2 \x1b[32m━━\x1b[0m"),
		}},
		{"a rune in pieces", []string{"\xc3", "\xbc\n"}, []Frame{line("ü")}},
	}
	for _, test := range tests {
		if got := split(test.pieces...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q gave %v, want %v", test.name, test.pieces, got, test.want)
		}
	}
}

func TestSplitterTellsAFrameBeforeTheNext(t *testing.T) {
	t.Parallel()
	var s Splitter
	s.Write([]byte("50%\r"))
	if f, ok := s.Pending(); !ok || f != (Frame{Text: "50%", Carriage: true}) {
		t.Errorf("pending gave %v, %v", f, ok)
	}
	if _, ok := s.Pending(); ok {
		t.Error("pending gave the frame twice")
	}
	if got := s.Write([]byte("\n100%\n")); !slices.Equal(got, []Frame{{Text: "100%"}}) {
		t.Errorf("then %v", got)
	}
}

func TestSplitterCutsLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", maxLine) // two bytes each
	var whole strings.Builder
	got := split(long[:3], long[3:maxLine+1], long[maxLine+1:])
	for i, f := range got {
		if f.Continues != (i < len(got)-1) {
			t.Errorf("piece %d of %d goes on: %v", i, len(got), f.Continues)
		}
		if len(f.Text) > maxLine || !utf8.ValidString(f.Text) || strings.Contains(f.Text, "\uFFFD") {
			t.Fatalf("a piece of %d bytes is no text", len(f.Text))
		}
		whole.WriteString(f.Text)
	}
	if whole.String() != long {
		t.Errorf("%d pieces do not make the line", len(got))
	}
}

func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\r\nb\rc\n"), 3)
	f.Add([]byte("\r\r\n\n\xff"), 1)
	f.Fuzz(func(t *testing.T, data []byte, cut int) {
		if cut < 0 || cut > len(data) {
			cut = len(data) / 2
		}
		once, twice := split(string(data)), split(string(data[:cut]), string(data[cut:]))
		if !slices.Equal(once, twice) {
			t.Errorf("%q cut at %d: %v and %v", data, cut, once, twice)
		}
		for _, line := range once {
			if !utf8.ValidString(line.Text) || strings.ContainsAny(line.Text, "\r\n\b") {
				t.Errorf("%q gave %q", data, line.Text)
			}
		}
	})
}

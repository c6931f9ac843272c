package agent

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func split(pieces ...string) []frame {
	var s splitter
	var all []frame
	for _, piece := range pieces {
		all = append(all, s.write([]byte(piece))...)
	}
	if last, ok := s.close(); ok {
		all = append(all, last)
	}
	return all
}

func TestSplitter(t *testing.T) {
	t.Parallel()
	line := func(text string) frame { return frame{text: text} }
	bar := func(text string) frame { return frame{text: text, carriage: true} }
	tests := []struct {
		name   string
		pieces []string
		want   []frame
	}{
		{"nothing", nil, nil},
		{"lines", []string{"a\nb\n"}, []frame{line("a"), line("b")}},
		{"no end", []string{"a\nb"}, []frame{line("a"), line("b")}},
		{"empty lines", []string{"\n\n"}, []frame{line(""), line("")}},
		{"in pieces", []string{"a", "b\nc", "\n"}, []frame{line("ab"), line("c")}},
		{"a bar", []string{"1/3\r2/3\r3/3\n"}, []frame{bar("1/3"), bar("2/3"), line("3/3")}},
		{"crlf is one end", []string{"a\r\nb\r\n"}, []frame{line("a"), line("b")}},
		{"crlf in pieces", []string{"a\r", "\nb"}, []frame{line("a"), line("b")}},
		{"a bar's last frame", []string{"1\r"}, []frame{bar("1")}},
		{"not text", []string{"a\xffb\n"}, []frame{line("a\uFFFDb")}},
		{"a rune in pieces", []string{"\xc3", "\xbc\n"}, []frame{line("ü")}},
	}
	for _, test := range tests {
		if got := split(test.pieces...); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q gave %v, want %v", test.name, test.pieces, got, test.want)
		}
	}
}

func TestSplitterTellsAFrameBeforeTheNext(t *testing.T) {
	t.Parallel()
	var s splitter
	s.write([]byte("50%\r"))
	if f, ok := s.pending(); !ok || f != (frame{text: "50%", carriage: true}) {
		t.Errorf("pending gave %v, %v", f, ok)
	}
	if _, ok := s.pending(); ok {
		t.Error("pending gave the frame twice")
	}
	if got := s.write([]byte("\n100%\n")); !slices.Equal(got, []frame{{text: "100%"}}) {
		t.Errorf("then %v", got)
	}
}

func TestSplitterCutsLongLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ü", maxLine) // two bytes each
	var whole strings.Builder
	got := split(long[:3], long[3:maxLine+1], long[maxLine+1:])
	for i, f := range got {
		if f.goesOn != (i < len(got)-1) {
			t.Errorf("piece %d of %d goes on: %v", i, len(got), f.goesOn)
		}
		if len(f.text) > maxLine || !utf8.ValidString(f.text) || strings.Contains(f.text, "\uFFFD") {
			t.Fatalf("a piece of %d bytes is no text", len(f.text))
		}
		whole.WriteString(f.text)
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
			if !utf8.ValidString(line.text) || strings.ContainsAny(line.text, "\r\n") {
				t.Errorf("%q gave %q", data, line.text)
			}
		}
	})
}

package termtext

import "testing"

// TestVisible: invisible characters are replaced, and line ends stay.
func TestVisible(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                        "",
		"größe\t1\nnext":          "größe 1\nnext",
		"\x1b[31mred\x07\r":       "\uFFFD[31mred\uFFFD\uFFFD",
		"\u009b2J\x7f":            "\uFFFD2J\uFFFD",
		"a\u202eb\u200b\u2028":    "a\uFFFDb\uFFFD\uFFFD",
		"cut \xe2\x82":            "cut \uFFFD",
		"already \uFFFD, and 日本語": "already \uFFFD, and 日本語",
	} {
		if got := Visible(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

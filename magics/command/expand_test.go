package command

import (
	"context"
	"slices"
	"strings"
	"testing"
)

// known are names and expressions with their values.
type known struct{ names, exprs map[string]string }

func (k known) Expand(_ context.Context, names []string) (map[string]*string, error) {
	found := map[string]*string{}
	for _, n := range names {
		if v, ok := k.names[n]; ok {
			found[n] = &v
		}
	}
	return found, nil
}

func (k known) Evaluate(_ context.Context, expr string) (string, error) {
	v, ok := k.exprs[expr]
	if !ok {
		return "", &UsageError{Text: expr + " is not known"}
	}
	return v, nil
}

// expand gives a line's words.
func expand(line string, names known) ([]string, error) {
	table := &Table{Verbs: []Verb{{Name: "logs", Magic: true, Now: true}}}
	l := table.Line(line, nil)
	if l.err != nil {
		return nil, l.err
	}
	found, err := tokens(context.Background(), l.words, names)
	var words []string
	for _, k := range found {
		words = append(words, k.text)
	}
	return words, err
}

func TestWords(t *testing.T) {
	t.Parallel()
	names := known{
		names: map[string]string{"lr": "0.1", "path": "/a b", "größe": "7"},
		exprs: map[string]string{"n*2": "6", "d['}']": "x", "f(1, {2})": "y", "x:.2f": "1.50"},
	}
	for _, tc := range []struct {
		name, line string
		want       []string
	}{
		{"plain", "start main_fun 1 2", []string{"start", "main_fun", "1", "2"}},
		{"spaces and tabs", "  a \t b  ", []string{"a", "b"}},
		{"quotes", `a 'b c' "d e" f"g h"i`, []string{"a", "b c", "d e", "fg hi"}},
		{"empty words", `a '' ""`, []string{"a", "", ""}},
		{"escapes", `a\ b "c\"d" 'e\f' g\\h`, []string{"a b", `c"d`, `e\f`, `g\h`}},
		{"comment", "a b # c $lr {", []string{"a", "b"}},
		{"no comment inside a word", "a#b '#c'", []string{"a#b", "#c"}},
		{"continuation", "a \\\n  b\\\nc", []string{"a", "bc"}},
		{"name", "--lr $lr x$lr-", []string{"--lr", "0.1", "x0.1-"}},
		{"a name's text is one word", "a $path", []string{"a", "/a b"}},
		{"unicode name", "$größe", []string{"7"}},
		{"in double quotes", `"lr is $lr"`, []string{"lr is 0.1"}},
		{"not in single quotes", `'$lr {n*2} {{'`, []string{"$lr {n*2} {{"}},
		{"literal", "$$lr {{a}} $1 $", []string{"$lr", "{a}", "$1", "$"}},
		{"expression", "{n*2} a{ n*2 }b", []string{"6", "a6b"}},
		{"braces in strings and nested", `{d['}']} {f(1, {2})}`, []string{"x", "y"}},
		{"format", "{x:.2f}", []string{"1.50"}},
		{"now is not expanded", "logs --now --grep $lr{x", []string{"logs", "--now", "--grep", "$lr{x"}},
		{"empty", "", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, err := expand(tc.line, names); err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("words of %q are %q, %v; want %q", tc.line, got, err, tc.want)
			}
		})
	}
}

func TestWordErrors(t *testing.T) {
	t.Parallel()
	names := known{}
	for line, want := range map[string]string{
		`a 'b`:    "' is not closed",
		`a "b`:    `" is not closed`,
		`a \`:     `no line follows`,
		`a {b`:    "{ is not closed",
		`a {}`:    "no expression",
		`a {"b}`:  "not closed",
		`a {b)}`:  "not closed",
		`a $lr`:   "the notebook has no name lr",
		`a {x+1}`: "is not known",
	} {
		_, err := expand(line, names)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gave %v, want an error with %q", line, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q gave more than a line: %v", line, err)
		}
	}
}

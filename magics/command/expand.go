package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Expander knows what the names of a line stand for.
type Expander interface {
	// Expand gives each name's value as text, nil for one that there is not.
	Expand(ctx context.Context, names []string) (map[string]*string, error)
	// Evaluate gives an expression's value as text.
	Evaluate(ctx context.Context, expr string) (string, error)
}

// Tokens turns a line into words. A --now line is taken as it stands: it works
// while Python is busy or dead.
func (t *Table) Tokens(ctx context.Context, line string, names Expander) ([]token, error) {
	now := t.IsNow(line)
	words, err := lex(line, !now)
	if err != nil {
		return nil, &UsageError{Text: err.Error()}
	}
	values, err := lookup(ctx, words, names)
	if err != nil {
		return nil, err
	}
	tokens := make([]token, 0, len(words))
	for _, w := range words {
		var b strings.Builder
		for _, s := range w.segments {
			switch s.kind {
			case segName:
				b.WriteString(values[s.text])
			case segExpr:
				text, err := names.Evaluate(ctx, s.text)
				if err != nil {
					return nil, err
				}
				b.WriteString(text)
			default:
				b.WriteString(s.text)
			}
		}
		_, literal := w.literal()
		tokens = append(tokens, token{Text: b.String(), quoted: w.quoted || !literal})
	}
	return tokens, nil
}

// lookup asks for every $name of a line at once.
func lookup(ctx context.Context, words []word, of Expander) (map[string]string, error) {
	wanted := map[string]bool{}
	for _, w := range words {
		for _, s := range w.segments {
			if s.kind == segName {
				wanted[s.text] = true
			}
		}
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	names := slices.Sorted(maps.Keys(wanted))
	found, err := of.Expand(ctx, names)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, n := range names {
		if found[n] == nil {
			return nil, &UsageError{Text: fmt.Sprintf("$%s: the notebook has no name %s; $$ is a literal $, and nothing is expanded inside single quotes", n, n)}
		}
		texts[n] = *found[n]
	}
	return texts, nil
}

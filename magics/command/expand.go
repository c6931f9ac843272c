package command

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Expander returns the values of the names and expressions in a line.
type Expander interface {
	// Expand returns the value of each name as text, nil for a name that does not exist.
	Expand(ctx context.Context, names []string) (map[string]*string, error)
	// Evaluate returns the value of an expression as text.
	Evaluate(ctx context.Context, expr string) (string, error)
}

// tokens returns the words of a line with their names and expressions expanded.
func tokens(ctx context.Context, words []word, names Expander) ([]token, error) {
	values, err := lookup(ctx, words, names)
	if err != nil {
		return nil, err
	}
	expanded := make([]token, 0, len(words))
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
		expanded = append(expanded, token{text: b.String(), quoted: w.quoted || !literal})
	}
	return expanded, nil
}

// lookup requests the values of all $names of a line at once.
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
			return nil, &UsageError{
				Text: fmt.Sprintf(
					"$%s: the notebook has no name %s; $$ is a literal $, and nothing is expanded inside single quotes", n, n),
			}
		}
		texts[n] = *found[n]
	}
	return texts, nil
}

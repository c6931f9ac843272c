package magics

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// tokens turns a line into words. A --now line is taken as it stands: it works
// while Python is busy or dead.
func (t *Table) tokens(ctx context.Context, line string, py Python) ([]token, error) {
	now := t.isNow(line)
	words, err := lex(line, !now)
	if err != nil {
		return nil, &UsageError{Text: err.Error()}
	}
	names, err := lookup(ctx, words, py)
	if err != nil {
		return nil, err
	}
	tokens := make([]token, 0, len(words))
	for _, w := range words {
		var b strings.Builder
		for _, s := range w.segments {
			switch s.kind {
			case segName:
				b.WriteString(names[s.text])
			case segExpr:
				text, err := evaluate(ctx, s.text, py)
				if err != nil {
					return nil, err
				}
				b.WriteString(text)
			default:
				b.WriteString(s.text)
			}
		}
		_, literal := w.literal()
		tokens = append(tokens, token{text: b.String(), quoted: w.quoted || !literal})
	}
	return tokens, nil
}

// lookup asks for every $name of a line at once.
func lookup(ctx context.Context, words []word, py Python) (map[string]string, error) {
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
	found := map[string]*string{}
	if err := ask(ctx, py, lookupTimeout, "expand", map[string]any{"names": names}, &found); err != nil {
		return nil, expandError("$"+names[0], err)
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

func evaluate(ctx context.Context, expr string, py Python) (string, error) {
	var text string
	if err := ask(ctx, py, lookupTimeout, "eval", map[string]any{"expr": expr}, &text); err != nil {
		return "", expandError("{"+shorten(expr, 60)+"}", err)
	}
	return text, nil
}

func expandError(what string, err error) error {
	if pe, ok := errors.AsType[*PythonError](err); ok {
		return &UsageError{Text: what + ": " + pe.Error()}
	}
	return fmt.Errorf("expand %s: %w", what, err)
}

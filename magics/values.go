package magics

import (
	"context"
	"errors"
	"fmt"
)

// values are the notebook's, for the names of a line.
type values struct{ py Python }

// Expand implements Expander.
func (v values) Expand(ctx context.Context, names []string) (map[string]*string, error) {
	found := map[string]*string{}
	if err := ask(ctx, v.py, lookupTimeout, "expand", map[string]any{"names": names}, &found); err != nil {
		return nil, expandError("$"+names[0], err)
	}
	return found, nil
}

// Evaluate implements Expander.
func (v values) Evaluate(ctx context.Context, expr string) (string, error) {
	var text string
	if err := ask(ctx, v.py, lookupTimeout, "eval", map[string]any{"expr": expr}, &text); err != nil {
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

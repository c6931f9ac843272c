package magics

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
)

// values are the notebook's, for the names of a line.
type values struct{ py bridge.Python }

// Expand implements Expander.
func (v values) Expand(ctx context.Context, names []string) (map[string]*string, error) {
	found := map[string]*string{}
	if err := bridge.Ask(ctx, v.py, bridge.LookupTimeout, "expand", map[string]any{"names": names}, &found); err != nil {
		if pe, ok := errors.AsType[*bridge.PythonError](err); ok && pe.Name == "UsageError" {
			return nil, &command.UsageError{Text: pe.Text} // it says of which name
		}
		return nil, expandError("$"+strings.Join(names, ", $"), err)
	}
	return found, nil
}

// Evaluate implements Expander.
func (v values) Evaluate(ctx context.Context, expr string) (string, error) {
	var text string
	if err := bridge.Ask(ctx, v.py, bridge.LookupTimeout, "eval", map[string]any{"expr": expr}, &text); err != nil {
		return "", expandError("{"+command.Shorten(expr, 60)+"}", err)
	}
	return text, nil
}

func expandError(what string, err error) error {
	if pe, ok := errors.AsType[*bridge.PythonError](err); ok {
		return &command.UsageError{Text: what + ": " + pe.Error()}
	}
	return fmt.Errorf("find the value of %s: %w", what, err)
}

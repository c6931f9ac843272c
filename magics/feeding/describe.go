package feeding

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/result"
)

// description is Python's description of the data.
type description struct {
	Plan    map[string]any `json:"plan"`
	Columns []string       `json:"columns"`
	Total   int64          `json:"total"`
	Once    bool           `json:"once"`
	Slots   bool           `json:"slots"` // tasks of Spark read the data: they need slots
}

// describe asks Python to look at the data, which may be a name of the caller's frame. After an error Python may keep
// the data until feed_end.
func (f *Client) describe(ctx context.Context, py bridge.Python) (description, error) {
	plan := map[string]any{
		"mode": f.request.Mode, "epochs": f.request.Epochs, "uneven": f.request.Uneven, "data": f.request.Data,
	}
	maps.Copy(plan, f.request.Plan)
	var about description
	args := map[string]any{"id": f.id, "name": f.request.Data, "plan": plan}
	err := bridge.Ask(ctx, py, bridge.ProgramTimeout, "feed_describe", args, &about)
	if refused, ok := errors.AsType[*bridge.PythonError](err); ok && refused.Name == "UsageError" {
		return description{}, &result.ClusterError{
			Text: fmt.Sprintf("%s cannot be fed: %s", f.request.Data, refused.Text), Code: 2, Topic: "feed-source",
		}
	}
	if err != nil {
		return description{}, fmt.Errorf("%s cannot be read: %w", f.request.Data, err)
	}
	if about.Once && f.request.Epochs > 1 {
		return description{}, &result.ClusterError{
			Text: fmt.Sprintf("%s is an iterator, which can be read once: --epochs %d needs arrays or a DataFrame",
				f.request.Data, f.request.Epochs), Code: 2,
		}
	}
	return about, nil
}

package magics

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// history shows the cluster's runs.
func (s *Session) history(ctx context.Context, inv *invocation) (Value, error) {
	m, err := s.pick(ctx, inv.Command)
	if err != nil {
		return nil, err
	}
	runs, err := m.history(ctx)
	if err != nil {
		return nil, err
	}
	if !inv.Has("json") {
		display(inv.out, historyView(runs))
		return nil, nil
	}
	list := make([]json.RawMessage, 0, len(runs))
	for _, r := range runs {
		text, err := protojson.MarshalOptions{UseProtoNames: true, EmitUnpopulated: true}.Marshal(r)
		if err != nil {
			return nil, fmt.Errorf("encode JSON: %w", err)
		}
		list = append(list, text)
	}
	return nil, printJSON(inv.out, list)
}

func (m *member) history(ctx context.Context) ([]*clusterpb.RunStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	r, err := m.client.History(ctx, &clusterpb.HistoryRequest{})
	if err != nil {
		return nil, answered(err)
	}
	return r.GetRuns(), nil
}

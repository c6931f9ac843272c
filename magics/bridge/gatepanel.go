package bridge

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// PanelServer serves the comms of the JupyterLab extension.
type PanelServer interface {
	// ServePanel serves one comm until messages is closed or ctx ends.
	ServePanel(ctx context.Context, py Python, messages <-chan json.RawMessage, send func(any))
}

// panelBacklog bounds the number of a front end's pending messages.
const panelBacklog = 16

// panel serves a comm of the JupyterLab extension. Python passes its messages on unchanged, in both directions.
func (g *Gate) panel(c *caller, in *jsonlines.Reader) {
	ctx, cancel := context.WithCancel(g.ctx)
	messages := make(chan json.RawMessage, panelBacklog)
	var reader sync.WaitGroup
	reader.Go(func() { // ends with the connection
		defer cancel()
		for {
			var m json.RawMessage
			if in.Decode(&m) != nil {
				return
			}
			select {
			case messages <- m:
			case <-ctx.Done():
				return
			}
		}
	})
	// An error of send: the peer has closed the connection, and reader ends.
	g.panels.ServePanel(ctx, g, messages, func(m any) { _ = c.send(m) })
	cancel()
	_ = c.conn.Close() // wakes the reader
	reader.Wait()
}

package agent

import (
	"context"
	"testing"
	"time"
)

// TestGiveUp: the idle clock that fires while a driver joins does not end the agent.
func TestGiveUp(t *testing.T) {
	t.Parallel()
	for _, welcomed := range []bool{true, false} {
		ctx, cancel := context.WithCancelCause(t.Context())
		a := &Agent{cancel: cancel, driver: presence{welcomed: welcomed}}
		a.giveUp(time.Minute)
		if ended := ctx.Err() != nil; ended == welcomed {
			t.Errorf("an agent that a driver has welcomed (%v) ended: %v", welcomed, ended)
		}
		cancel(nil)
	}
}

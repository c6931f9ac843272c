package coordinator

import (
	"fmt"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// TestLogsOfAnAgentThatDidNotCome: before anything was started the engine's log of an
// agent that never joined is shown, and nothing of those that did.
func TestLogsOfAnAgentThatDidNotCome(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	<-c.saved // the engine has answered
	c.engine.mu.Lock()
	c.engine.logs = "it begins\nno Python here\n"
	c.engine.mu.Unlock()
	var got []string
	stream := &sent[clusterpb.LinesReply]{ctx: within(t), every: func(u *clusterpb.LinesReply) {
		for _, l := range u.GetLines() {
			got = append(got, l.GetTask()+": "+l.GetText())
		}
	}}
	logs := c.Control().(*control).Logs
	if err := logs(&clusterpb.LogsRequest{}, stream); err == nil || len(got) > 0 {
		t.Errorf("while all are there: %q, %v", got, err)
	}
	c.do(func() { c.handle(lifecycle.EngineLost{Exec: "1", Attempt: 0, Cause: "its agent ended with code 1"}) })
	if err := logs(&clusterpb.LogsRequest{}, stream); err != nil {
		t.Fatal(err)
	}
	if want := "[agent of worker:1: it begins agent of worker:1: no Python here]"; fmt.Sprint(got) != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

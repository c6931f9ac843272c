package coordinator

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestLogsOfAnAgentThatDidNotCome: before anything was started the engine's log of an
// agent that never joined is shown, and nothing of those that did.
func TestLogsOfAnAgentThatDidNotCome(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	<-c.saved // the engine has answered
	hasLogs := func(text string, err error) {
		c.engine.mu.Lock()
		defer c.engine.mu.Unlock()
		c.engine.logs, c.engine.logError = text, err
	}
	hasLogs("it begins\nno Python here\n", nil)
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
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "its agent ended with code 1"}) })
	if err := logs(&clusterpb.LogsRequest{}, stream); err != nil {
		t.Fatal(err)
	}
	if want := "[agent of worker:1: it begins agent of worker:1: no Python here]"; fmt.Sprint(got) != want {
		t.Errorf("got %q, want %s", got, want)
	}
	got = nil
	hasLogs("", errors.New("its node does not answer"))
	if err := logs(&clusterpb.LogsRequest{}, stream); err != nil ||
		fmt.Sprint(got) != "[agent of worker:1: its log cannot be read: its node does not answer]" {
		t.Errorf("a log that cannot be read: %q, %v", got, err)
	}
	got = nil
	hasLogs("", nil)
	if err := logs(&clusterpb.LogsRequest{}, stream); err == nil || len(got) > 0 {
		t.Errorf("an executor that had no agent: %q, %v", got, err)
	}
}

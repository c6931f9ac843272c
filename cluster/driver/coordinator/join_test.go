package coordinator

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// TestWithoutItsGPU: an agent that could hold no GPU is no executor, where its programs
// would compute on the CPU without a word: another is asked for, and at last the
// reservation says why.
func TestWithoutItsGPU(t *testing.T) {
	t.Parallel()
	c := coordinate(t, false)
	c.engine.answer <- nil
	c.up("0", 0)
	hello := &clusterpb.Hello{
		Protocol: clusterpb.Protocol, ExecutorId: "1", Host: "host1", Warmed: true,
		GpuError: "1 GPU is asked for, 0 of 2 are free",
	}
	if w := c.welcome(hello); !strings.Contains(w.GetRefused(), "0 of 2 are free") {
		t.Errorf("the agent is told %v", w)
	}
	c.do(func() {
		for attempt := range lifecycle.MaxReplacements + 1 {
			hello.Attempt, hello.Incarnation = int32(attempt), fmt.Sprint(attempt)
			c.join(newAgentConn("1"), hello)
		}
	})
	stream := &sent[clusterpb.ReserveUpdate]{ctx: within(t)}
	var last *clusterpb.ReserveUpdate
	stream.every = func(u *clusterpb.ReserveUpdate) { last = u }
	if err := c.Control().(*control).Reserve(&clusterpb.ReserveRequest{}, stream); err != nil {
		t.Fatal(err)
	}
	if f := last.GetFailure(); !strings.Contains(f.GetSummary(),
		"executor 1 for worker:1 failed 4 times, the last time: it got no GPU: 1 GPU is asked for, 0 of 2 are free") {
		t.Errorf("the failure is %v", f)
	}
}

package coordinator

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// stepIn reads the number in a run's file: what was written for TensorBoard last.
func stepIn(dir string) func() ([]Scalar, error) {
	return func() ([]Scalar, error) {
		text, err := os.ReadFile(filepath.Join(dir, "step"))
		if err != nil {
			return nil, err
		}
		step, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		return []Scalar{{Tag: "loss", Step: step, File: "step"}}, err
	}
}

// TestARunsLastStep: however a run ends, its end tells of the last step that its event
// files hold.
func TestARunsLastStep(t *testing.T) {
	t.Parallel()
	for want, code := range map[string]int32{"finished": 0, "failed": 1} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			c := coordinate(t, true)
			ctx, cancel := context.WithCancel(within(t))
			watching := make(chan struct{})
			go func() { c.WatchEvents(ctx, stepIn); close(watching) }()
			defer func() { cancel(); <-watching }()
			logs := c.entered(ctx)
			write := func(step string) {
				if err := os.WriteFile(filepath.Join(logs, "step"), []byte(step), 0o600); err != nil {
					t.Error(err)
				}
			}
			write("3")
			ended := false
			var last *clusterpb.RunStatus
			stream := &sent[clusterpb.RunUpdate]{ctx: ctx, every: func(u *clusterpb.RunUpdate) {
				if last = u.GetStatus(); ended || last.GetProgress().GetStep() != 3 {
					return
				}
				ended = true
				write("7")
				c.do(func() {
					for i := range 2 {
						c.handle(lifecycle.ProgramExited{Run: 1, Attempt: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}, Exit: &clusterpb.Exited{Code: code}})
					}
				})
			}}
			if err := c.Control().(*control).Follow(&clusterpb.FollowRequest{}, stream); err != nil {
				t.Fatal(err)
			}
			if last.GetState() != want || last.GetProgress().GetStep() != 7 {
				t.Errorf("a run that has %s tells that it has %s at step %d, not 7", want, last.GetState(), last.GetProgress().GetStep())
			}
		})
	}
}

// entered starts run 1 and lets its tasks enter their program; it returns their logs' folder.
func (c *coordinated) entered(ctx context.Context) (logs string) {
	c.t.Helper()
	if _, err := c.begin(ctx, &clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}); err != nil {
		c.t.Fatal(err)
	}
	c.do(func() {
		for _, id := range []cluster.ExecutorID{"0", "1"} {
			c.handle(lifecycle.PortPrepared{Exec: id, Run: 1, Attempt: 1, Port: 7000})
		}
		for i := range 2 {
			c.handle(lifecycle.ProgramEntered{Run: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}})
		}
		logs = c.files.here(c.runs.current().status.GetLogDir())
	})
	return logs
}

package clustertest

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// testStacks asks for the stacks of four tasks: one waits, one holds Python's GIL in native code,
// one is stopped, and the agent of one is killed meanwhile.
func testStacks(t *testing.T, h Harness) {
	c := h.Start(t, "worker=4")
	r := c.Script(`
import ctypes, json, os, time
def hold():
    ctypes.PyDLL(None).sleep(600)
index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
print("here", index, flush=True)
if index == 1:
    hold()
while True:
    time.sleep(0.05)
`)
	for _, line := range []string{"here 0", "here 1", "here 2", "here 3"} {
		r.Line(line)
	}
	c.Signal("worker:2", syscall.SIGSTOP)
	got := c.Snapshots(nil)
	if len(got.GetSnapshots()) != 4 || len(got.GetMissing()) != 0 || got.GetRun() != 1 {
		t.Fatalf("stacks: %v", got)
	}
	for task, want := range map[string]struct{ source, function string }{
		"worker:0": {clusterpb.FromPython, "<module>"}, "worker:1": {clusterpb.FromFaulthandler, "hold"},
		"worker:2": {clusterpb.FromProc, ""},
	} {
		s := SnapshotOf(got, task)
		function := ""
		if main := s.GetThreads()[0]; len(main.GetFrames()) > 0 {
			function = main.GetFrames()[0].GetFunction()
		}
		if s.GetSource() != want.source || function != want.function || s.GetPid() != c.Task(task).GetPid() ||
			s.GetHost() == "" || s.GetProcess().GetRssBytes() == 0 {
			t.Errorf("%s: %v", task, s)
		}
	}
	if got := c.Snapshots([]string{"worker:0,3"}); len(got.GetSnapshots()) != 2 || SnapshotOf(got, "worker:3") == nil {
		t.Errorf("stacks of worker:0,3: %v", got)
	}
	agent := int(c.executor("worker:3").GetPid())
	if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	kill := time.AfterFunc(300*time.Millisecond, func() { _ = syscall.Kill(agent, syscall.SIGKILL) }) // while it is asked
	defer kill.Stop()
	got = c.Snapshots(nil) // tasks of which none has been taken yet are ended, because the run fails
	lost := slices.IndexFunc(got.GetMissing(),
		func(m *clusterpb.MissingSnapshot) bool { return m.GetTask() == "worker:3" })
	if len(got.GetSnapshots())+len(got.GetMissing()) != 4 || lost < 0 ||
		!strings.Contains(got.GetMissing()[lost].GetReason(), "its agent on ") {
		t.Errorf("stacks while an agent is killed: %v", got)
	}
	if took := time.Since(began); took >= snapshotsTimeout {
		t.Errorf("they took %s: the driver waited for the agent that was killed", took)
	}
	if f := r.Wait().GetFailure(); f.GetTask() != "worker:3" || f.GetKind() != "lost" {
		t.Errorf("failure is %v", f)
	}
}

// snapshotsTimeout is long: only an agent that does not answer makes a call take it.
const snapshotsTimeout = time.Minute

// Snapshots returns the snapshots of tasks of the active run.
func (c *Cluster) Snapshots(tasks []string) *clusterpb.StacksReply {
	c.T.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	stream, err := c.Client.Stacks(ctx,
		&clusterpb.StacksRequest{Tasks: tasks, TimeoutMillis: snapshotsTimeout.Milliseconds()})
	if err != nil {
		c.T.Fatal(err)
	}
	all := &clusterpb.StacksReply{}
	for {
		reply, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			c.T.Fatalf("stacks: %v", err)
		}
		all.Run = reply.GetRun()
		all.Snapshots, all.Missing = append(all.GetSnapshots(), reply.GetSnapshots()...),
			append(all.GetMissing(), reply.GetMissing()...)
	}
}

// SnapshotOf returns a task's snapshot in a reply; nil if there is none.
func SnapshotOf(r *clusterpb.StacksReply, task string) *clusterpb.Snapshot {
	for _, s := range r.GetSnapshots() {
		if s.GetTask() == task {
			return s
		}
	}
	return nil
}

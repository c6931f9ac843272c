package coordinator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// deadline bounds every wait of these tests.
const deadline = time.Minute

// TestFollowLogsEqualStamps: an agent stamps what it reads at once alike; every such
// line comes through, once.
func TestFollowLogsEqualStamps(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	append2 := func(first uint64) {
		b := &clusterpb.LogBatch{Run: 1, Task: "worker:0", Attempt: 1, First: first}
		for i := range 2 {
			b.Lines = append(b.Lines, &clusterpb.Line{UnixNano: 1, Text: fmt.Sprint("line ", first+uint64(i))})
		}
		c.store.Append(b)
	}
	c.do(func() {
		c.runs.records = append(c.runs.records, newRecord(&clusterpb.RunStatus{Id: 1, Dir: c.cfg.Dir}))
	})
	append2(0)
	var got []string
	stream := &sent[clusterpb.LinesReply]{ctx: within(t)}
	stream.every = func(u *clusterpb.LinesReply) {
		for _, l := range u.GetLines() {
			got = append(got, l.GetText())
		}
		switch len(got) {
		case 2:
			append2(2)
		case 4:
			c.post(func() { c.runs.current().over = time.Now() })
		}
	}
	// The run ends in any case, so that a line that does not come is seen missing.
	stop := time.AfterFunc(deadline/2, func() { c.post(func() { c.runs.current().over = time.Now() }) })
	defer stop.Stop()
	if err := c.Control().(*control).Logs(&clusterpb.LogsRequest{Follow: true}, stream); err != nil {
		t.Fatal(err)
	}
	if want := "[line 0 line 1 line 2 line 3]"; fmt.Sprint(got) != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// TestStartThatFailsIsNotStarting: the last update of a start that failed before
// every task had entered says how it ended.
func TestStartThatFailsIsNotStarting(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	var last *clusterpb.StartUpdate
	stream.every = func(u *clusterpb.StartUpdate) {
		last = u
		c.post(func() { c.handle(lifecycle.PortPrepared{Exec: "0", Run: 1, Attempt: 1, Err: "no port is free"}) })
	}
	err := c.Control().(*control).Start(
		&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}, stream)
	if err != nil {
		t.Fatal(err)
	}
	if last.GetRun().GetState() != "failed" || last.GetFailure() == nil || last.GetEntered() {
		t.Errorf("the last update is %v", last)
	}
}

// TestResetEndsWaitingStart: a start that waits for an executor is answered when a
// reset ends it.
func TestResetEndsWaitingStart(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "preempted"}) })
	stream := &sent[clusterpb.StartUpdate]{ctx: within(t)}
	var last *clusterpb.StartUpdate
	stream.every = func(u *clusterpb.StartUpdate) {
		last = u
		c.post(func() { c.handle(lifecycle.ResetRequested{}) })
	}
	err := c.Control().(*control).Start(
		&clusterpb.StartRequest{Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT}}, stream)
	if err != nil {
		t.Fatal(err)
	}
	if last.GetRun().GetState() != "stopped" || last.GetFailure() == nil {
		t.Errorf("the last update is %v", last)
	}
}

// TestSlowEngine: clients are answered while the engine has not answered, and a
// shutdown does not wait for it.
func TestSlowEngine(t *testing.T) {
	t.Parallel()
	c := coordinate(t, false)
	st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
	if err != nil || st.GetState() != "reserving" {
		t.Fatalf("status is %v: %v", st, err)
	}
	stream := &sent[clusterpb.ShutdownUpdate]{ctx: within(t), every: func(*clusterpb.ShutdownUpdate) {}}
	if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{}, stream); err != nil {
		t.Error(err)
	}
}

// TestReplacedIsSaved: a driver that dies after an executor was replaced leaves a
// state that names the new one.
func TestReplacedIsSaved(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "preempted"}) })
	for {
		select {
		case saved := <-c.saved:
			if saved == "1" {
				return
			}
		case <-time.After(deadline):
			t.Fatal("the replacement was not saved")
		}
	}
}

// generous is an engine's allocation of which more is granted all the time.
type generous struct{ *engine }

func (generous) Saved() []byte { return []byte("granted") }

// TestGrantedIsSaved: what is granted is known to a driver that takes over, also while the
// engine grants more.
func TestGrantedIsSaved(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	<-c.saved // the engine has answered
	c.do(func() { c.reserved.alloc = generous{c.engine} })
	more := time.NewTicker(time.Millisecond)
	defer more.Stop()
	for end := time.After(deadline); ; {
		select {
		case <-more.C:
			c.engine.events <- cluster.Granted{Executor: "1", Host: "host1"}
		case saved := <-c.saved:
			if saved == "granted" {
				return
			}
		case <-end:
			t.Fatal("what was granted was not saved")
		}
	}
}

// forgiving is an engine's allocation that leaves places out.
type forgiving struct {
	*engine
	forgiven bool
}

func (f *forgiving) AgentJoined(cluster.ExecutorID, int, string) {}
func (f *forgiving) ClearExclusions()                            { f.forgiven = true }
func (f *forgiving) Saved() []byte                               { return fmt.Append(nil, "forgiven ", f.forgiven) }

// TestForgivenIsSaved: what is left out, and a reset's word against it, are known to a
// driver that takes over.
func TestForgivenIsSaved(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	<-c.saved // the engine has answered
	c.do(func() { c.reserved.alloc = &forgiving{engine: c.engine} })
	awaits := func(want string) {
		t.Helper()
		for end := time.After(deadline); ; {
			select {
			case saved := <-c.saved:
				if saved == want {
					return
				}
			case <-end:
				t.Fatalf("%q was not saved", want)
			}
		}
	}
	c.engine.events <- cluster.Warning{Text: "a node is left out"}
	awaits("forgiven false")
	c.do(func() { c.reset(false) })
	awaits("forgiven true")
}

// TestStaleAgent: the agent of an executor that was replaced does not take the
// stream of the present one.
func TestStaleAgent(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() { c.handle(cluster.Lost{Executor: "1", Attempt: 0, Cause: "its host is gone"}) })
	present := c.up("1", 1)
	stale := c.up("1", 0)
	c.do(func() {
		if c.execs.agents["1"] != present {
			t.Error("the stale agent took the stream")
		}
	})
	if in := stale.take(); len(in) != 1 || in[0].GetRelease() == nil {
		t.Errorf("the stale agent was told %v", in)
	}
}

// TestBarrierOfEnded: a task that waits at a barrier gets an error when another task ends before it arrives, also in
// the last attempt of a run.
func TestBarrierOfEnded(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	const attempt = 1011 // --max-restarts 1000 and --max-losses 10
	var waiting *agentConn
	c.do(func() {
		waiting = c.execs.agents["0"]
		c.runs.program = &clusterpb.StartRequest{}
		c.runs.records = append(c.runs.records, newRecord(&clusterpb.RunStatus{Id: 1, Dir: t.TempDir()}))
		c.handle(lifecycle.StartRequested{Spec: lifecycle.RunSpec{ID: 1}})
		c.lc.Run().Attempt = attempt
		for _, id := range []cluster.ExecutorID{"0", "1"} {
			c.handle(lifecycle.PortPrepared{Exec: id, Run: 1, Attempt: attempt, Port: 7000})
		}
		for i := range 2 {
			c.handle(lifecycle.ProgramEntered{Run: 1, Task: cluster.TaskID{Role: cluster.Worker, Index: i}})
		}
		waiting.take()
		c.agentMessage(waiting, &clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Barrier{
			Barrier: &clusterpb.BarrierArrived{Run: 1, Attempt: attempt, Task: "worker:0", Name: "saved"},
		}})
		c.handle(lifecycle.ProgramExited{
			Run: 1, Attempt: attempt, Task: cluster.TaskID{Role: cluster.Worker, Index: 1}, Exit: &clusterpb.Exited{},
		})
	})
	for _, in := range waiting.take() {
		if in.GetBarrier().GetError() != "" {
			return
		}
	}
	t.Error("the barrier was not released")
}

// TestNotesAreBounded: a cluster that lives for weeks does not keep all it ever said.
func TestNotesAreBounded(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	c.do(func() {
		for i := range 10 * 500 {
			c.note(fmt.Sprint("note ", i), false)
		}
	})
	st, err := c.Control().Status(within(t), &clusterpb.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if n := st.GetNotes(); len(n) > 500 || n[len(n)-1].GetText() != "note 4999" {
		t.Errorf("%d notes, the last %q", len(n), n[len(n)-1].GetText())
	}
}

// TestResumeCopies: the checkpoints taken up are there before the run begins, links
// as links; a copy that fails leaves no run behind.
func TestResumeCopies(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	old := filepath.Join(rundir.Dir(c.cfg.Dir, 1), "checkpoints")
	if err := errors.Join(os.MkdirAll(old, 0o755), os.WriteFile(filepath.Join(old, "ckpt-1"), []byte("weights"), 0o600),
		os.Symlink("ckpt-1", filepath.Join(old, "latest"))); err != nil {
		t.Fatal(err)
	}
	c.do(func() {
		rec := newRecord(&clusterpb.RunStatus{Id: 1, State: "finished", CheckpointDir: old})
		rec.over, c.runs.lastRun = time.Now(), 1
		c.runs.records = append(c.runs.records, rec)
	})
	req := &clusterpb.StartRequest{
		Options: &clusterpb.RunOptions{Resume: "1"}, Program: &clusterpb.Program{Kind: clusterpb.Program_SCRIPT},
	}
	canceled, cancel := context.WithCancel(context.Background())
	var plan *runPlan
	var err error
	c.do(func() { plan, err = c.plan(req) })
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := plan.chooseCheckpoints(&c.files); err != nil {
		t.Fatal(err)
	}
	if err := c.files.folders(canceled, plan); err == nil {
		t.Error("a start that was given up copied on")
	}
	if _, err := os.Stat(plan.status.GetDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("half a run is left: %v", err)
	}
	c.do(func() { c.runs.planning = false })
	rec, err := c.startRun(within(t), req)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(rec.status.GetCheckpointDir(), "latest"))
	if err != nil || string(b) != "weights" {
		t.Errorf("the checkpoint is %q: %v", b, err)
	}
}

// TestShutdownTellsWhatIsLeft: who shuts a cluster down reads what the engine still holds.
func TestShutdownTellsWhatIsLeft(t *testing.T) {
	t.Parallel()
	c := coordinate(t, true)
	<-c.saved // the engine has answered
	c.engine.mu.Lock()
	c.engine.stuck = errors.New("application_1_0001 was not ended")
	c.engine.mu.Unlock()
	var texts []string
	stream := &sent[clusterpb.ShutdownUpdate]{
		ctx: within(t), every: func(u *clusterpb.ShutdownUpdate) { texts = append(texts, u.GetText()) },
	}
	if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{}, stream); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(texts, "|"); !strings.Contains(got,
		"warning: not everything was released: application_1_0001 was not ended|") {
		t.Errorf("it reads %q", got)
	}
}

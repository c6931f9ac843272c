package agent

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func TestDriverComesBackToATaskThatEnded(t *testing.T) {
	t.Parallel()
	c := bare(t)
	gate := filepath.Join(t.TempDir(), "gate")
	c.prepare(1, 0)
	l := c.cell(1, `
import os, sys, time
print("task", os.getpid(), flush=True)
while not os.path.exists(sys.argv[1]): time.sleep(.01)
for i in range(1000): print("while away", i)
print("bad end", file=sys.stderr)
sys.exit(3)
`)
	l.Program.Words = []string{gate}
	c.launch(l)
	pid := c.pidIn("task")
	c.stop()
	c.mu.Lock()
	c.messages = nil
	c.mu.Unlock()
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the task", pid)
	c.listen(c.address)
	x := c.exited(1)
	if x.GetCode() != 3 || len(x.GetTail()) == 0 || x.GetTail()[len(x.GetTail())-1] != "bad end" {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "while away 999\n") || strings.Count(text, "while away") != 1000 {
		t.Errorf("%d lines came", strings.Count(text, "while away"))
	}
	c.event("Entered, again", func(e *clusterpb.TaskEvent) bool { return e.GetEntered() != nil })
}

func TestDriverStaysAway(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	c.welcome.OrphanGraceMillis, c.welcome.IdleMillis = 100, 60_000
	ended := c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, "")))
	c.awaitLine("ready")
	pid := c.pidIn("task")
	c.welcome.IdleMillis = 100
	c.stop()
	awaitEnd(t, "the orphan", pid)
	c.listen(c.address) // it waited: a driver may come again
	if x := c.exited(1); !strings.Contains(x.GetReason(), "no driver of the cluster connected") {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "saved") {
		t.Errorf("it was not let save: %q", text)
	}
	c.stop()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "no driver of the cluster connected for 100ms") {
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the agent waits for ever")
	}
}

func TestRelease(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	ended := c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, "")))
	c.awaitLine("ready")
	pid := c.pidIn("task")
	c.do(
		&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: "shutdown"}}})
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the agent did not end")
	}
	if alive(pid) {
		t.Error("the task outlived its agent")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, nil)
	c.welcome = &clusterpb.Welcome{Refused: "its version is 1, the driver's is 2"}
	select {
	case err := <-c.runAgent(nil):
		if err == nil || !strings.Contains(err.Error(), "its version is 1") {
			t.Errorf("the agent ended with %v", err)
		}
	case <-time.After(patience):
		t.Error("the agent goes on")
	}
}

func TestAFloodIsKeptWhileNothingIsAcknowledged(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.mu.Lock()
	c.muted = true
	c.mu.Unlock()
	c.prepare(1, 0)
	const n = 200_000
	c.launch(c.cell(1, fmt.Sprintf("for i in range(%d): print('line', i)\nprint('x' * 3_000_000)\n", n)))
	if x := c.exited(1); x.GetCode() != 0 {
		t.Fatalf("exited %v", x)
	}
	c.stop()
	c.mu.Lock()
	c.muted, c.lines, c.ends, c.next = false, nil, nil, map[string]uint64{}
	c.mu.Unlock()
	c.listen(c.address)
	c.text(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lines) != n+3 || c.lost != 0 {
		t.Fatalf("%d lines, %d lost, want %d", len(c.lines), c.lost, n+3)
	}
	for i, line := range c.lines[:n] {
		if line.GetText() != fmt.Sprintf("line %d", i) {
			t.Fatalf("line %d is %q", i, line.GetText())
		}
	}
}

func TestEventFilesAreSentAsTheyGrow(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	c.runAgent(func(cfg *clusterpb.AgentConfig) { cfg.Folders.SharedDir = "" })
	c.warmed()
	c.prepare(1, 0)
	l := c.cell(1, `
import os, sys, time, tfcluster
folder = tfcluster.context().log_dir + "/train"
os.makedirs(folder)
with open(folder + "/events.out", "wb") as f:
    f.write(b"first "); f.flush()
    while not os.path.exists(sys.argv[1]): time.sleep(.01)
    f.write(b"x" * 1_000_000 + b" last")
`)
	l.Directories.Dir = t.TempDir() + "/run-001"
	l.Directories.Logs = l.Directories.Dir + "/logs"
	gate := filepath.Join(t.TempDir(), "gate")
	l.Program.Words = []string{gate}
	c.launch(l)
	const path = "run-001/logs/train/events.out"
	c.await("the first bytes", func() bool { return string(c.files[path]) == "first " })
	writeFile(t, gate, "")
	c.await("the last bytes", func() bool {
		return len(c.files[path]) == 1_000_011 && strings.HasSuffix(string(c.files[path]), " last")
	})
}

// TestALinkThatBreaksDoesNotBeginAgain: of a file bigger than what goes through before
// the stream breaks, a part counts each time.
func TestALinkThatBreaksDoesNotBeginAgain(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	c.mu.Lock()
	c.syncLimit = 12 << 20
	c.mu.Unlock()
	cfg := &clusterpb.AgentConfig{
		Identity: c.ca.identity(t, "0"), Driver: &clusterpb.DriverAddress{Coordinator: c.address, ServerName: "coordinator"},
	}
	conn, err := dial(cfg, &resolver{address: c.address}, mainAlive)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	run := filepath.Join(t.TempDir(), "run-001")
	logs := filepath.Join(run, "logs")
	content := bytes.Repeat([]byte("0123456789abcdef"), 40<<20/16)
	if err := errors.Join(os.MkdirAll(logs, 0o755),
		os.WriteFile(filepath.Join(logs, "events.out"), content, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, "a\xff"), []byte("no message holds its name"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newFileSync(clusterpb.NewCoordinatorClient(conn), "0", run)
	for range 20 {
		_ = s.rounds(t.Context())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if got := c.files["run-001/logs/events.out"]; !bytes.Equal(got, content) {
		t.Errorf("%d of %d bytes came", len(got), len(content))
	}
}

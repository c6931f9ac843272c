package agent

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/runfiles"
)

// apart is a coordinator and an agent that share no disk. Its folder is where whole
// files are kept; runtime is the agent's.
func apart(t *testing.T, keeps bool) (c *coordinator, dir, runtime string, ended <-chan error) {
	t.Helper()
	c = newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	dir, runtime = t.TempDir(), t.TempDir()
	if keeps {
		c.keeper = runfiles.NewReceiver(runfiles.NewLocal(dir), dir, func(string) bool { return true },
			func(w string) { t.Log(w) })
		c.keeper.Allow(2)
		c.mayPut = make(chan struct{})
	}
	t.Cleanup(func() { leftovers(t, runtime) }) // behind the agent's end
	ended = c.runAgent(func(cfg *clusterpb.AgentConfig) { cfg.Folders.SharedDir, cfg.Folders.RuntimeDir = "", runtime })
	c.warmed()
	return c, dir, runtime, ended
}

func (c *coordinator) filesSent() *clusterpb.FilesSent {
	c.t.Helper()
	var sent *clusterpb.FilesSent
	c.await("FilesSent", func() bool {
		for _, m := range c.messages {
			if m.GetFilesSent() != nil {
				sent = m.GetFilesSent()
			}
		}
		return sent != nil
	})
	return sent
}

// told tells whether a message has come.
func (c *coordinator) told(match func(*clusterpb.AgentMessage) bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.messages, match)
}

const savesAndEnds = `
import os, sys, tfcluster
ctx = tfcluster.context()
assert not os.path.exists(sys.argv[1])
with open(ctx.checkpoint_dir + "/model.keras", "w") as f: f.write("weights")
print("saved", flush=True)
os._exit(int(sys.argv[2]))
`

// saves launches it below a folder that only the driver has.
func (c *coordinator) saves(code string) {
	l := c.cell(1, savesAndEnds)
	l.Attempt = 1
	d := l.GetDirectories()
	d.Dir = filepath.Join(c.t.TempDir(), "run-001")
	d.Logs, d.Checkpoints, d.Export = d.Dir+"/logs", d.Dir+"/checkpoints", d.Dir+"/export"
	l.Program.Words = []string{d.Dir, code}
	c.prepare(1, 1)
	c.launch(l)
	c.awaitLine("saved")
}

func isExited(m *clusterpb.AgentMessage) bool { return m.GetTask().GetExited() != nil }

// TestAGoodEndIsToldWithItsFiles: and the agent's folder goes with it.
func TestAGoodEndIsToldWithItsFiles(t *testing.T) {
	t.Parallel()
	c, dir, runtime, ended := apart(t, true)
	c.saves("0")
	time.Sleep(settleTail) // an end told too early would be here by now
	if c.told(isExited) {
		t.Error("the end was told before the files had come")
	}
	close(c.mayPut)
	if x := c.exited(1); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "run-001/checkpoints/model.keras")); string(b) != "weights" {
		t.Errorf("the driver has %q: %v", b, err)
	}
	if sent := c.filesSent(); len(sent.GetMissing()) > 0 || sent.GetAttempt() != 1 || sent.GetTask() != "worker:0" {
		t.Errorf("told %v", sent)
	}
	c.do(
		&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: "shutdown"}}})
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the agent does not end")
	}
	if left, _ := filepath.Glob(filepath.Join(runtime, "*own-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestABadEndIsToldAtOnce: the next attempt waits for the files.
func TestABadEndIsToldAtOnce(t *testing.T) {
	t.Parallel()
	c, dir, _, _ := apart(t, true)
	c.saves("3")
	if x := c.exited(1); x.GetCode() != 3 {
		t.Errorf("exited %v", x)
	}
	c.do(
		&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Prepare{Prepare: &clusterpb.Prepare{Run: 1, Attempt: 2}}})
	time.Sleep(settleTail) // an answer too early would be here by now
	second := func(m *clusterpb.AgentMessage) bool { return m.GetPrepared().GetAttempt() == 2 }
	if c.told(second) {
		t.Error("the next attempt may begin without the checkpoint")
	}
	close(c.mayPut)
	c.await("Prepared", func() bool { return slices.ContainsFunc(c.messages, second) })
	if _, err := os.Stat(filepath.Join(dir, "run-001/checkpoints/model.keras")); err != nil {
		t.Error(err)
	}
}

// TestWhatCannotBeSentIsNamed: the end is told all the same.
func TestWhatCannotBeSentIsNamed(t *testing.T) {
	t.Parallel()
	c, _, _, _ := apart(t, false)
	c.saves("0")
	if x := c.exited(1); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
	sent := c.filesSent()
	if got := sent.GetMissing(); len(got) != 1 || got[0] != "run-001/checkpoints/model.keras" ||
		!strings.Contains(sent.GetError(), "Put") {
		t.Errorf("told %v", sent)
	}
}

// TestFoldersOfKilledAgentsGo: those of living ones stay.
func TestFoldersOfKilledAgentsGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	dead := filepath.Join(dir, ownPrefix+"dead")
	if err := errors.Join(os.MkdirAll(dead, 0o700), os.WriteFile(filepath.Join(dead, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	first, err := openOwnFolder(dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := openOwnFolder(dir, "second")
	if err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("there are %v, %v", entries, err)
	}
	first.close()
	second.close()
	if entries, err := os.ReadDir(dir); len(entries) != 0 {
		t.Errorf("there are %v, %v", entries, err)
	}
}

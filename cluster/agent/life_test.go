package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// awaitLine waits for a line that holds text.
func (c *coordinator) awaitLine(text string) {
	c.t.Helper()
	c.await("the line "+text, func() bool {
		for _, line := range c.lines {
			if strings.Contains(line.GetText(), text) {
				return true
			}
		}
		return false
	})
}

// pidIn waits for a line "NAME PID" and returns the number.
func (c *coordinator) pidIn(name string) int {
	c.t.Helper()
	c.awaitLine(name + " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, line := range c.lines {
		if rest, ok := strings.CutPrefix(line.GetText(), name+" "); ok {
			pid, err := strconv.Atoi(rest)
			if err != nil {
				c.t.Fatal(err)
			}
			return pid
		}
	}
	return 0
}

func alive(pid int) bool {
	stat, ok := proc.Read(pid)
	return ok && !stat.Over()
}

// awaitEnd waits until a process is gone.
func awaitEnd(t *testing.T, what string, pid int) {
	t.Helper()
	for end := time.Now().Add(patience); alive(pid); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s (pid %d) still runs", what, pid)
		}
	}
}

const sleeper = `
import os, signal, subprocess, sys, time
print("task", os.getpid(), flush=True)
%s
try:
    print("ready", flush=True)
    time.sleep(600)
finally:
    print("saved", flush=True)
`

func TestEndRun(t *testing.T) {
	t.Parallel()
	c := bare(t)
	tests := []struct {
		name, extra  string
		grace        time.Duration
		code, signal int32
		saved        bool
	}{
		{"SIGTERM lets it save", "", time.Minute, 143, 0, true},
		{"without grace", "", 0, -1, 9, false},
		{"deaf to SIGTERM", "signal.signal(signal.SIGTERM, signal.SIG_IGN)", 200 * time.Millisecond, -1, 9, false},
		{
			"with children, one of them in a session of its own",
			`subprocess.Popen(["sleep", "601"]); p = subprocess.Popen(["sleep", "602"], start_new_session=True); ` +
				`print("child", p.pid, flush=True)`,
			time.Minute, 143, 0, true,
		},
	}
	for i, test := range tests {
		run := int32(i + 1)
		c.prepare(run, 0)
		c.launch(c.cell(run, fmt.Sprintf(sleeper, test.extra)))
		c.awaitLine("ready")
		if i == len(tests)-1 {
			c.pidIn("child")
		}
		c.endRun(run, test.grace)
		if x := c.exited(run); x.GetCode() != test.code || x.GetSignal() != test.signal || x.GetOutOfMemory() ||
			x.GetReason() != "" {
			t.Errorf("%s: exited %v", test.name, x)
		}
		if saved := strings.Contains(c.text(run), "saved"); saved != test.saved {
			t.Errorf("%s: saved %v", test.name, saved)
		}
		c.mu.Lock()
		c.lines = c.lines[:0]
		c.mu.Unlock()
	}
}

func TestWhatATaskLeavesRunningEnds(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, `
import subprocess
p = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", p.pid, flush=True)
`))
	if x := c.exited(1); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
	c.text(1) // ends although the child holds the pipes
	awaitEnd(t, "the child", c.pidIn("child"))
}

func TestZygoteDies(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, `p = subprocess.Popen(["sleep", "600"]); print("child", p.pid, flush=True)
print("zygote", os.getppid(), flush=True)`)))
	c.awaitLine("ready")
	task, child, zygote := c.pidIn("task"), c.pidIn("child"), c.pidIn("zygote")
	c.mu.Lock()
	c.messages = nil
	c.mu.Unlock()
	if err := unix.Kill(zygote, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := c.exited(1); x.GetReason() != "the process that tasks are forked from (the zygote) ended unexpectedly" ||
		x.GetSignal() != 9 {
		t.Errorf("exited %v", x)
	}
	awaitEnd(t, "the task", task)
	awaitEnd(t, "its child", child)
	c.endRun(1, 0)
	c.warmed()
	c.prepare(2, 0)
	c.launch(c.cell(2, "print('again')"))
	if x := c.exited(2); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
}

// TestZygoteDiesAndTasksDaemonsWithIt: a fork of a fork of the zygote has nothing of
// the task's but is found all the same.
func TestZygoteDiesAndTasksDaemonsWithIt(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: bareVenv(t), Zygote: true})
	c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, `
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
print("zygote", os.getppid(), flush=True)`)))
	c.awaitLine("ready")
	daemon, zygote := c.pidIn("daemon"), c.pidIn("zygote")
	if err := unix.Kill(zygote, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.exited(1)
	awaitEnd(t, "the daemon", daemon)
}

// bareVenv is an interpreter without packages: it is warm at once.
func bareVenv(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command(plainPython(t), "-m", "venv", "--without-pip", dir).CombinedOutput(); err != nil {
		t.Fatalf("make an environment: %v: %s", err, out)
	}
	return filepath.Join(dir, "bin", "python")
}

func TestEndRunWhilePythonWarmsUp(t *testing.T) {
	t.Parallel()
	slow := filepath.Join(t.TempDir(), "python")
	writeFile(t, slow, "#!/bin/sh\nexec sleep 600\n")
	if err := os.Chmod(slow, 0o700); err != nil {
		t.Fatal(err)
	}
	c := newCoordinator(t, &clusterpb.WarmUp{Python: slow})
	c.runAgent(nil)
	c.await("Hello", func() bool { return c.stream != nil })
	c.prepare(1, 0)
	c.launch(c.cell(1, ""))
	c.endRun(1, time.Minute)
	if x := c.exited(1); x.GetReason() != "" || x.GetSignal() != int32(unix.SIGKILL) {
		t.Errorf("exited %v", x)
	}
}

func TestRestartWhileTheAttemptBeforeStillEnds(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, `p = subprocess.Popen(["sleep", "600"], start_new_session=True)`)))
	c.awaitLine("ready")
	c.endRun(1, time.Minute) // the child holds the pipes for a while
	c.exited(1)
	port := c.prepare(1, 1)
	c.await("the end of the first attempt", func() bool { return len(c.ends) == 1 })
	l := c.cell(1, fmt.Sprintf("import socket\nsocket.socket().bind(('0.0.0.0', %d))\n", port))
	l.Attempt = 1
	c.launch(l)
	e := c.event("the second exit",
		func(e *clusterpb.TaskEvent) bool { return e.GetAttempt() == 1 && e.GetExited() != nil })
	if x := e.GetExited(); !strings.Contains(x.GetException(), "Address already in use") {
		t.Errorf("the port of the second attempt is not held: %v", x)
	}
}

func TestAStoppedTaskShows(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, "")))
	c.awaitLine("ready")
	if err := unix.Kill(c.started(1), unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.await("state T", func() bool {
		for _, m := range c.messages {
			for _, u := range m.GetHeartbeat().GetUsage() {
				if u.GetState() == "T" && u.GetUsage().GetRssBytes() > 1<<20 {
					return true
				}
			}
		}
		return false
	})
}

func TestPeersCanServeOnTheHeldPort(t *testing.T) {
	t.Parallel()
	c := bare(t)
	port := c.prepare(1, 0)
	for run, reuse := range map[int32]bool{1: true, 2: false} {
		l := c.cell(run, fmt.Sprintf(`
import socket
s = socket.socket()
if %s: s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
s.bind(("0.0.0.0", %d)); s.listen()
`, map[bool]string{true: "True", false: "False"}[reuse], port))
		c.launch(l)
		if x := c.exited(run); (x.GetCode() == 0) != reuse {
			t.Errorf("reuse %v: exited %v", reuse, x)
		}
	}
}

// TestMain runs an agent instead of the tests where a test asks for it: one
// that can be killed. An agent of a test's starts its guard and its forker from this program
// too, which is package forking's doing.
func TestMain(m *testing.M) {
	if os.Getenv("TFCLUSTER_TEST_AGENT") != "" {
		cfg, err := clusterpb.ReadAgentConfig(os.Stdin)
		if err == nil {
			err = Main(context.Background(), cfg, "test")
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestKilledAgentTakesItsTasksAlong(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t)})
	dir := t.TempDir()
	t.Cleanup(func() { leftovers(t, dir) })
	c.runAgent(func(cfg *clusterpb.AgentConfig) { cfg.Folders.RuntimeDir = dir })
	c.warmed() // its zygote is the other one's too
	cmd := c.killable(dir, "1")
	c.await("the second Warmed", func() bool {
		n := 0
		for _, m := range c.messages {
			if m.GetWarmed() != nil || m.GetHello().GetWarmed() {
				n++
			}
		}
		return n == 2
	})
	c.prepare(1, 0) // to the agent that joined last
	c.launch(c.cell(1, fmt.Sprintf(sleeper,
		`p = subprocess.Popen(["sleep", "600"], start_new_session=True); print("child", p.pid, flush=True)`)))
	c.awaitLine("ready")
	task, child := c.pidIn("task"), c.pidIn("child")
	if err := cmd.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the task", task)
	awaitEnd(t, "its child", child)
}

// killable starts an agent that is a process of its own, with these variables.
func (c *coordinator) killable(dir, id string, env ...string) *os.Process {
	c.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), "TFCLUSTER_TEST_AGENT=1"), env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	cmd.Stderr = c.t.Output()
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	config, err := (&clusterpb.AgentConfig{
		Identity: c.ca.identity(c.t, id), Driver: &clusterpb.DriverAddress{Coordinator: c.address},
		Folders: &clusterpb.HostFolders{RuntimeDir: dir},
	}).Encode()
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := in.Write(config); err != nil {
		c.t.Fatal(err)
	}
	in.Close()
	return cmd.Process
}

package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
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
	stat, ok := readStat(pid)
	return ok && stat.state != "Z" && stat.state != "X"
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
			`subprocess.Popen(["sleep", "601"]); p = subprocess.Popen(["sleep", "602"], start_new_session=True); print("child", p.pid, flush=True)`,
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
		if x := c.exited(run); x.GetCode() != test.code || x.GetSignal() != test.signal || x.GetOutOfMemory() || x.GetReason() != "" {
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
	if x := c.exited(1); x.GetReason() != "the zygote died" || x.GetSignal() != 9 {
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
	if x := c.exited(1); !strings.Contains(x.GetReason(), "lost its driver") {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "saved") {
		t.Errorf("it was not let save: %q", text)
	}
	c.stop()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "no driver came within 100ms") {
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
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Release{Release: &clusterpb.Release{Reason: "shutdown"}}})
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

func TestPythonThatCannotBeStarted(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Python: "/no/such/python"})
	c.runAgent(nil)
	if p := c.warmed(); !strings.Contains(p.GetError(), "/no/such/python cannot be started") {
		t.Errorf("warmed %v", p)
	}
	c.prepare(1, 0)
	c.launch(c.cell(1, ""))
	if x := c.exited(1); !strings.Contains(x.GetReason(), "no such file") || x.GetCode() != -1 {
		t.Errorf("exited %v", x)
	}
	c.text(1)
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

func TestRuntimeFolder(t *testing.T) {
	t.Parallel()
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := prepareFolder(open); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(open); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(open, link); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{link: "of this user's own", "/" + strings.Repeat("x", 100): "longer than"} {
		if err := prepareFolder(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40s: %v", dir, err)
		}
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	c := bare(t)
	for run, test := range map[int32]struct {
		words []string
		code  int32
		says  string
	}{
		1: {[]string{"sh", "-c", "echo $GREETING; exit 4"}, 4, "hello"},
		2: {[]string{"no-such-command"}, 127, "cannot run no-such-command: No such file or directory"},
		3: {[]string{"/etc/passwd"}, 126, "cannot run /etc/passwd: Permission denied"},
	} {
		c.prepare(run, 0)
		l := c.cell(run, "")
		l.Program = &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Words: test.words}
		l.Env = map[string]string{"GREETING": "hello"}
		c.launch(l)
		if x := c.exited(run); x.GetCode() != test.code {
			t.Errorf("%q exited %v", test.words, x)
		}
		if text := c.text(run); !strings.Contains(text, test.says) {
			t.Errorf("%q wrote %q", test.words, text)
		}
		c.endRun(run, 0)
	}
}

func TestBlobThatIsNotWhatItsNameSays(t *testing.T) {
	t.Parallel()
	c := bare(t)
	good := c.blob("print('x')")
	c.mu.Lock()
	c.blobs[good.GetSha256()] = []byte("print('y')")
	c.mu.Unlock()
	for run, digest := range map[int32]string{1: good.GetSha256(), 2: strings.Repeat("0", 64), 3: "../../etc/passwd"} {
		c.prepare(run, 0)
		l := c.cell(run, "")
		l.Program.Body = &clusterpb.Blob{Sha256: digest}
		c.launch(l)
		if x := c.exited(run); !strings.Contains(x.GetReason(), "fetch") {
			t.Errorf("%s: exited %v", digest, x)
		}
		c.endRun(run, 0)
	}
}

func TestBarrierAndTrainingOver(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	l := c.cell(1, `
import os, tfcluster.context
ctx = tfcluster.context()
ctx.barrier("start")
print("passed", flush=True)
for path in ctx.checkpoints():
    print("saw", os.path.basename(path), flush=True)
print("over", flush=True)
`)
	checkpoints := t.TempDir()
	l.Directories.Checkpoints = checkpoints
	c.launch(l)
	c.await("the arrival", func() bool {
		for _, m := range c.messages {
			if m.GetBarrier().GetName() == "start" {
				return true
			}
		}
		return false
	})
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Barrier{Barrier: &clusterpb.BarrierReleased{Run: 1, Name: "start"}}})
	c.awaitLine("passed")
	if err := os.WriteFile(filepath.Join(checkpoints, "a.keras"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.awaitLine("saw a.keras")
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_TrainingOver{TrainingOver: &clusterpb.TrainingOver{Run: 1}}})
	if x := c.exited(1); x.GetCode() != 0 {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "over") {
		t.Errorf("lines %q", text)
	}
}

func TestEventFilesAreSentAsTheyGrow(t *testing.T) {
	t.Parallel()
	c := bare(t)
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

func TestAStoppedTaskShows(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(sleeper, "")))
	c.awaitLine("ready")
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_Signal{Signal: &clusterpb.SignalTask{Run: 1, Task: "worker:0", Signal: int32(unix.SIGSTOP)}}})
	c.await("state T", func() bool {
		for _, m := range c.messages {
			for _, u := range m.GetHeartbeat().GetUsage() {
				if u.GetState() == "T" && u.GetRssBytes() > 1<<20 {
					return true
				}
			}
		}
		return false
	})
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
// that can be killed.
func TestMain(m *testing.M) {
	if os.Getenv("TFCLUSTER_TEST_AGENT") != "" {
		if err := Main(context.Background(), os.Stdin, "test"); err != nil {
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
	c.runAgent(func(cfg *Config) { cfg.RuntimeDir, cfg.ExecutorID = dir, "0" })
	c.warmed() // its zygote is the other one's too
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TFCLUSTER_TEST_AGENT=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	ca, cert, key := c.ca.agent(t)
	fmt.Fprintf(in, `{"executor_id":"1","coordinator":%q,"ca_pem":%q,"cert_pem":%q,"key_pem":%q,"runtime_dir":%q}`, c.address, ca, cert, key, dir)
	in.Close()
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
	c.launch(c.cell(1, fmt.Sprintf(sleeper, `p = subprocess.Popen(["sleep", "600"], start_new_session=True); print("child", p.pid, flush=True)`)))
	c.awaitLine("ready")
	task, child := c.pidIn("task"), c.pidIn("child")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "the task", task)
	awaitEnd(t, "its child", child)
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"":   "unexpected end of JSON input",
		"[]": "cannot unmarshal",
		`{"executor_id":"0","coordinator":"h:1"}`:                              "lacks runtime_dir",
		`{"executor_id":"0","coordinator":"h:1","runtime_dir":"/r","gpus":-1}`: "negative",
	} {
		if _, err := ReadConfig(strings.NewReader(input)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", input, err, want)
		}
	}
	if _, err := ReadConfig(io.MultiReader(strings.NewReader("{"), errorReader{})); err == nil {
		t.Error("a broken pipe was taken for a configuration")
	}
	bad := Config{Coordinator: "h:1", RuntimeDir: t.TempDir(), ExecutorID: "0"}
	if err := Run(t.Context(), bad, "test", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("Run without a certificate: %v", err)
	}
}

type errorReader struct{}

func (errorReader) Read([]byte) (int, error) { return 0, errors.New("broken") }

package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// snapshot asks for a snapshot of a run's task and waits for it.
func (c *coordinator) snapshot(run, round int32) *clusterpb.Snapshot {
	c.t.Helper()
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_TakeSnapshot{TakeSnapshot: &clusterpb.TakeSnapshot{
		Run: run, Round: round, TimeoutMillis: 20_000,
	}}})
	var found *clusterpb.Snapshot
	c.await(fmt.Sprintf("snapshot %d", round), func() bool {
		for _, m := range c.messages {
			if s := m.GetSnapshot(); s.GetRound() == round {
				found = s.GetSnapshot()
			}
		}
		return found != nil
	})
	return found
}

// places are the functions of a thread with their lines of source.
func places(t *clusterpb.ThreadStack) string {
	var all []string
	for _, f := range t.GetFrames() {
		all = append(all, fmt.Sprintf("%s:%d %s", f.GetFunction(), f.GetLine(), f.GetCode()))
	}
	return strings.Join(all, "; ")
}

// threadWith returns the thread one of whose frames is of a function.
func threadWith(s *clusterpb.Snapshot, function string) *clusterpb.ThreadStack {
	for _, t := range s.GetThreads() {
		if slices.ContainsFunc(t.GetFrames(), func(f *clusterpb.Frame) bool { return f.GetFunction() == function }) {
			return t
		}
	}
	return nil
}

// waiting is a program in whose threads waits, of the function in which it then is.
const waiting = `
import ctypes, os, signal, subprocess, sys, threading, time

def hold():
    ctypes.PyDLL(None).usleep(600_000_000)

def work():
    lock.acquire()

def innermost():
    print("ready", flush=True)
    %s

lock = threading.Lock()
lock.acquire()
threading.Thread(target=work, name="helper", daemon=True).start()
innermost()
`

// TestStacks: a snapshot of a task in Python, in a fork and in a new interpreter.
func TestStacks(t *testing.T) {
	t.Parallel()
	for _, zygote := range []bool{false, true} {
		t.Run(map[bool]string{false: "interpreter", true: "fork"}[zygote], func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t), Zygote: zygote})
			c.runAgent(nil)
			c.warmed()
			c.prepare(1, 0)
			c.launch(c.cell(1, fmt.Sprintf(waiting, `subprocess.run(["sleep", "600"])`)))
			c.awaitLine("ready")
			pid := c.started(1)
			var s *clusterpb.Snapshot
			// Until the command is executed, and waited for: a thread that is about to sleep has
			// its state already, and no wait channel yet.
			for round := int32(1); len(s.GetChildren()) == 0 || s.GetChildren()[0].GetCommand() != "sleep 600" ||
				s.GetProcess().GetState() != "S" || s.GetThreads()[0].GetWaitChannel() == ""; round++ {
				s = c.snapshot(1, round)
			}
			if s.GetTask() != "worker:0" || s.GetHost() != "here" || s.GetExecutorId() != "0" || s.GetRun() != 1 ||
				int(s.GetPid()) != pid || s.GetUnixNano() == 0 {
				t.Errorf("snapshot of %v", s)
			}
			if s.GetSource() != clusterpb.FromPython || s.GetError() != "" {
				t.Fatalf("source %q, error %q", s.GetSource(), s.GetError())
			}
			main := s.GetThreads()[0]
			if !main.GetMain() || int(main.GetNativeId()) != pid || main.GetName() != "MainThread" || main.GetState() != "S" ||
				main.GetWaitChannel() == "" ||
				!strings.HasSuffix(places(main), `innermost:12 subprocess.run(["sleep", "600"]); <module>:17 innermost()`) {
				t.Errorf("main thread %v", main)
			}
			if helper := threadWith(s, "work"); helper.GetName() != "helper" || helper.GetMain() || helper.GetState() != "S" ||
				!strings.HasPrefix(places(helper), "work:8 lock.acquire(); ") {
				t.Errorf("helper %v", helper)
			}
			for _, thread := range s.GetThreads() {
				if strings.HasPrefix(thread.GetName(), "tfcluster-") {
					t.Errorf("tfcluster's own thread %v", thread)
				}
			}
			if p := s.GetProcess(); int(p.GetPid()) != pid || p.GetRssBytes() < 1<<20 || p.GetThreads() < 2 ||
				p.GetCommand() == "" || p.GetState() != "S" {
				t.Errorf("process %v", p)
			}
		})
	}
}

// TestStacksOfATaskStartedAgain: the process of an earlier attempt does not answer for the one that runs.
func TestStacksOfATaskStartedAgain(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, "raise SystemExit(1)"))
	c.exited(1)
	again := c.cell(1, fmt.Sprintf(waiting, "time.sleep(600)"))
	again.Attempt = 1000
	c.launch(again)
	c.awaitLine("ready")
	if s := c.snapshot(1, 1); s.GetPid() == 0 || s.GetAttempt() != 1000 {
		t.Errorf("the snapshot is %v", s)
	}
}

// TestStacksWhileTheGILIsHeld: faulthandler writes the stacks, in every state of Python, and the
// program's system call is not interrupted.
func TestStacksWhileTheGILIsHeld(t *testing.T) {
	t.Parallel()
	for _, zygote := range []bool{false, true} {
		t.Run(map[bool]string{false: "interpreter", true: "fork"}[zygote], func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, &clusterpb.WarmUp{Python: plainPython(t), Zygote: zygote})
			c.runAgent(nil)
			c.warmed()
			c.prepare(1, 0)
			c.launch(c.cell(1, fmt.Sprintf(waiting, `hold()`)))
			c.awaitLine("ready")
			for round := int32(1); round <= 3; round++ {
				s := c.snapshot(1, round)
				if s.GetSource() != clusterpb.FromFaulthandler || !strings.Contains(s.GetError(), "GIL") {
					t.Fatalf("round %d: source %q, error %q", round, s.GetSource(), s.GetError())
				}
				main := s.GetThreads()[0]
				if !main.GetMain() || int(main.GetNativeId()) != c.started(1) ||
					!strings.HasPrefix(places(main), "hold:5 ; innermost:12 ; <module>:17 ") || len(main.GetFrames()) != 3 {
					t.Errorf("round %d: main thread %v", round, main)
				}
				if threadWith(s, "work") == nil || threadWith(s, "_read_loop") != nil {
					t.Errorf("round %d: threads %v", round, s.GetThreads())
				}
			}
			if slices.ContainsFunc(c.messages, func(m *clusterpb.AgentMessage) bool { return m.GetTask().GetExited() != nil }) {
				t.Error("the task has ended: its sleep was interrupted")
			}
		})
	}
}

// computing is a program of whose threads each waits long for the GIL, though none holds it in native code.
const computing = `
import threading, time

def deep(n):
    return 0 if n == 0 else deep(n - 1) + len([n])

def work():
    begin.wait()
    while True:
        deep(200)

begin = threading.Event()
for _ in range(%d):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
begin.set()
work()
`

// TestStacksWhileThreadsCompute: faulthandler may crash a program while one of its threads runs Python, so it is not
// used because Python answers late.
func TestStacksWhileThreadsCompute(t *testing.T) {
	t.Parallel()
	for _, threads := range []int{3, 150} {
		t.Run(fmt.Sprintf("%d threads", threads), func(t *testing.T) {
			t.Parallel()
			c := bare(t)
			c.prepare(1, 0)
			c.launch(c.cell(1, fmt.Sprintf(computing, threads)))
			c.awaitLine("ready")
			for round := int32(1); round <= 5; round++ {
				if s := c.snapshot(1, round); s.GetPid() == 0 || s.GetSource() == clusterpb.FromFaulthandler {
					t.Fatalf("round %d: source %q, error %q, pid %d", round, s.GetSource(), s.GetError(), s.GetPid())
				}
			}
		})
	}
}

// TestStacksOfAProgramThatRemovesTheHandler: the signal would end such a program, or the handler
// write to a file of the program's, so it is not sent.
func TestStacksOfAProgramThatRemovesTheHandler(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"reset":        `signal.signal(signal.SIGRTMIN + 3, signal.SIG_DFL); hold()`,
		"unregistered": `import faulthandler; faulthandler.unregister(signal.SIGRTMIN + 3); hold()`,
		"blocked":      `signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65)); hold()`, // of this thread only
		"closed":       `os.closerange(3, 1000); [open("/dev/null") for _ in range(20)]; hold()`,
		"replaced": `os.execvp(sys.executable, [sys.executable, "-c", "import ctypes; ` +
			`ctypes.PyDLL(None).usleep(600_000_000)"])`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := bare(t)
			c.prepare(1, 0)
			c.launch(c.cell(1, fmt.Sprintf(waiting, code)))
			c.awaitLine("ready")
			var s *clusterpb.Snapshot
			for round := int32(1); round <= 3; round++ {
				s = c.snapshot(1, round)
			}
			want := map[bool]string{false: clusterpb.FromProc, true: clusterpb.FromFaulthandler}[name == "blocked"]
			if s.GetSource() != want || s.GetPid() == 0 || s.GetError() == "" {
				t.Errorf("source %q of pid %d, error %q, want %s", s.GetSource(), s.GetPid(), s.GetError(), want)
			}
		})
	}
}

// TestStacksOfAStoppedTask: /proc only, in no time, and Python's stacks once it continues.
func TestStacksOfAStoppedTask(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(waiting, `time.sleep(600)`)))
	c.awaitLine("ready")
	pid := c.started(1)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	var s *clusterpb.Snapshot
	round := int32(1)
	for ; s.GetProcess().GetState() != "T"; round++ { // it may answer before the signal stops it
		s = c.snapshot(1, round)
	}
	if s.GetSource() != clusterpb.FromProc || !strings.Contains(s.GetError(), "stopped") || !s.GetThreads()[0].GetMain() ||
		s.GetThreads()[0].GetState() != "T" {
		t.Errorf("source %q, error %q, threads %v", s.GetSource(), s.GetError(), s.GetThreads())
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if s = c.snapshot(1, round); s.GetSource() != clusterpb.FromPython || threadWith(s, "innermost") == nil {
		t.Errorf("source %q, threads %v", s.GetSource(), s.GetThreads())
	}
}

// TestStacksOfACommand: /proc only.
func TestStacksOfACommand(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.command(1, "sh", "-c", "echo ready; sleep 600; true"))
	c.awaitLine("ready")
	var s *clusterpb.Snapshot
	for round := int32(1); len(s.GetChildren()) == 0 || s.GetChildren()[0].GetCommand() != "sleep 600"; round++ {
		s = c.snapshot(1, round)
	}
	if s.GetSource() != clusterpb.FromProc || s.GetError() != "its program is not Python" ||
		s.GetProcess().GetCommand() != "sh -c echo ready; sleep 600; true" || s.GetChildren()[0].GetParent() != s.GetPid() {
		t.Errorf("snapshot %v", s)
	}
}

// TestStacksOfAProgramThatEnds: an answer comes in every moment of a program's end, and after it.
func TestStacksOfAProgramThatEnds(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(waiting, `hold()`)))
	c.awaitLine("ready")
	pid := c.started(1)
	dying := make(chan struct{})
	go func() {
		defer close(dying)
		time.Sleep(700 * time.Millisecond) // a snapshot is being taken
		_ = unix.Kill(pid, unix.SIGKILL)
	}()
	var s *clusterpb.Snapshot
	for round := int32(1); round == 1 || s.GetPid() != 0; round++ {
		s = c.snapshot(1, round)
	}
	<-dying
	if !strings.Contains(s.GetError(), "ended") || s.GetProcess() != nil || len(s.GetThreads()) > 0 {
		t.Errorf("snapshot %v", s)
	}
	if x := c.exited(1); x.GetSignal() != int32(unix.SIGKILL) {
		t.Errorf("exited %v", x)
	}
}

// TestStacksInTheLog: what --step-timeout asks for.
func TestStacksInTheLog(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, fmt.Sprintf(waiting, `time.sleep(600)`)))
	c.awaitLine("ready")
	// Until it sleeps.
	for round := int32(1); !strings.HasPrefix(places(c.snapshot(1, round).GetThreads()[0]), "innermost:12 "); round++ {
	}
	c.do(&clusterpb.Instruction{Instruction: &clusterpb.Instruction_TakeSnapshot{
		TakeSnapshot: &clusterpb.TakeSnapshot{Run: 1, TimeoutMillis: 20_000, ToLog: true},
	}})
	c.awaitLine(`Thread "MainThread", state `)
	c.awaitLine(`  File "<cell [7]>", line 12 in innermost`)
	c.awaitLine(`    time.sleep(600)`)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.messages,
		func(m *clusterpb.AgentMessage) bool { return m.GetSnapshot() != nil && m.GetSnapshot().GetRound() == 0 }) {
		t.Error("a snapshot for the log is also sent")
	}
}

// TestManySnapshots: many snapshots leave no descriptor, thread or process in the task or
// the agent, and the program's result is right.
func TestManySnapshots(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	c.launch(c.cell(1, `
import sys, time
print("ready", flush=True)
total, end = 0, time.monotonic() + 600
while not sys.stdin.isatty() and time.monotonic() < end:
    total += sum(range(1000))
    if total >= 499500 * 3000: break
print("total", total % 499500, flush=True)
time.sleep(600)
`))
	c.awaitLine("ready")
	pid := c.started(1)
	count := func() (descriptors, threads int) {
		for folder, into := range map[string]*int{"fd": &descriptors, "task": &threads} {
			entries, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), folder))
			if err != nil {
				t.Fatal(err)
			}
			*into = len(entries)
		}
		return descriptors, threads
	}
	c.snapshot(1, 1)
	d, n := count()
	for round := int32(2); round <= 40; round++ {
		if s := c.snapshot(1, round); s.GetSource() == clusterpb.FromProc {
			t.Fatalf("round %d: %s", round, s.GetError())
		}
	}
	if d2, n2 := count(); d2 > d || n2 > n {
		t.Errorf("the task has %d descriptors and %d threads, %d and %d before", d2, n2, d, n)
	}
	c.awaitLine("total 0")
}

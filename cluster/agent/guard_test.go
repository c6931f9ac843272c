package agent

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// threeChildren is a task's: one in its session, one in another, and one that carries
// no mark of the task's either.
const threeChildren = `
echo task $$; echo starter $PPID
sleep 600 & echo near $!
setsid sh -c 'echo apart $$; exec sleep 601' &
setsid env -i sh -c 'echo unmarked $$; exec sleep 602' &
exec sleep 603`

// TestAgentKilledWithAnother: of an agent and one of the two that its tasks descend from
// nobody sees the other's end, and all of the task ends.
func TestAgentKilledWithAnother(t *testing.T) {
	t.Parallel()
	python := plainPython(t)
	for name, test := range map[string]struct {
		want  *clusterpb.WarmUp
		guard bool // is killed
	}{
		"forker":         {&clusterpb.WarmUp{Plain: true}, false},
		"forker's guard": {&clusterpb.WarmUp{Plain: true}, true},
		"zygote":         {&clusterpb.WarmUp{Python: python}, false},
		"zygote's guard": {&clusterpb.WarmUp{Python: python}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, test.want)
			dir := t.TempDir()
			t.Cleanup(func() { leftovers(t, dir) })
			agent := c.killable(dir, "0")
			c.warmed()
			c.prepare(1, 0)
			c.launch(c.command(1, "sh", "-c", threeChildren))
			other := c.pidIn("starter")
			if test.guard {
				stat, ok := proc.Read(other)
				if other = stat.Parent; !ok || other <= 1 {
					t.Fatalf("the guard has pid %d", other)
				}
			}
			left := map[string]int{}
			for _, who := range []string{"task", "near", "apart", "unmarked"} {
				left[who] = c.pidIn(who)
			}
			for _, number := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
				for _, pid := range []int{agent.Pid, other} {
					if err := unix.Kill(pid, number); err != nil {
						t.Fatal(err)
					}
				}
			}
			for who, pid := range left {
				awaitEnd(t, who, pid)
			}
		})
	}
}

// headless is a task whose main thread has ended before another one: ps shows it as a zombie. Its child is in a session
// of its own and has no mark.
const headless = `
import ctypes, os, subprocess, sys, threading, time
child = subprocess.Popen(["sleep", "600"], start_new_session=True, env={})
def rest():
    while open(f"/proc/{os.getpid()}/stat").read().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
    print("child", child.pid, flush=True)
    time.sleep(600)
threading.Thread(target=rest).start()
libc = ctypes.CDLL(None)
libc.syscall(int(sys.argv[1]), 0)`

// TestTaskWithoutMainThread: what such a task has started ends with it, while another task goes on.
func TestTaskWithoutMainThread(t *testing.T) {
	t.Parallel()
	python := plainPython(t)
	for name, want := range map[string]*clusterpb.WarmUp{"forker": {Plain: true}, "zygote": {Python: python}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, want)
			c.runAgent(nil)
			c.warmed()
			c.prepare(2, 0)
			c.launch(c.command(2, "sh", "-c", "echo other $$; exec sleep 600"))
			other := c.pidIn("other")
			c.prepare(1, 0)
			c.launch(c.command(1, python, "-c", headless, strconv.Itoa(unix.SYS_EXIT)))
			child := c.pidIn("child")
			c.endRun(1, 0)
			c.exited(1)
			awaitEnd(t, "the child", child)
			if !alive(other) {
				t.Error("another task has ended, too")
			}
		})
	}
}

// TestStoppedStarter: a zygote or forker that gets SIGSTOP is continued: it ends its task, starts another one, and
// ends with its agent.
func TestStoppedStarter(t *testing.T) {
	t.Parallel()
	python := plainPython(t)
	for name, want := range map[string]*clusterpb.WarmUp{"forker": {Plain: true}, "zygote": {Python: python}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCoordinator(t, want)
			dir := t.TempDir()
			t.Cleanup(func() { leftovers(t, dir) })
			agent := c.killable(dir, "0")
			c.warmed()
			var starter int
			for run := int32(1); run <= 2; run++ {
				c.prepare(run, 0)
				c.launch(c.command(run, "sh", "-c", fmt.Sprintf("echo starter-%d $PPID; exec sleep 600", run)))
				starter = c.pidIn(fmt.Sprintf("starter-%d", run))
				if err := unix.Kill(starter, unix.SIGSTOP); err != nil {
					t.Fatal(err)
				}
				c.endRun(run, 0)
				if x := c.exited(run); x.GetSignal() != int32(unix.SIGKILL) {
					t.Errorf("run %d ended with %v", run, x)
				}
			}
			for pid, number := range map[int]unix.Signal{starter: unix.SIGSTOP, agent.Pid: unix.SIGKILL} {
				if err := unix.Kill(pid, number); err != nil {
					t.Fatal(err)
				}
			}
			awaitEnd(t, "starter", starter)
		})
	}
}

// TestZygoteOfPath: an interpreter's name means the one that the agent finds, whatever PATH
// programs are given.
func TestZygoteOfPath(t *testing.T) {
	t.Parallel()
	want, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"sh": want, "/not/there": "/not/there"} {
		if args := interpreter.Command(&clusterpb.WarmUp{Python: name}, "socket").Args; args[2] != path {
			t.Errorf("for %s it runs %q", name, args)
		}
	}
}

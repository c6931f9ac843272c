package agent

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/forking"
	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// plain is an agent that has no Python.
func plain(t *testing.T) *coordinator {
	t.Helper()
	c := newCoordinator(t, &clusterpb.WarmUp{Plain: true, Python: filepath.Join(t.TempDir(), "no-python")})
	c.runAgent(nil)
	if p := c.warmed(); p.GetError() != "" {
		t.Fatalf("without Python: %s", p.GetError())
	}
	return c
}

func (c *coordinator) command(run int32, words ...string) *clusterpb.Launch {
	l := c.cell(run, "")
	l.Program = &clusterpb.Program{Kind: clusterpb.Program_COMMAND, Words: words}
	l.Env = map[string]string{"GREETING": "hello"}
	return l
}

// TestPlainCommands: what commands see and how they end is the same without Python.
func TestPlainCommands(t *testing.T) {
	t.Parallel()
	c := plain(t)
	for i, test := range []struct {
		words        []string
		code, signal int32
		says         string
	}{
		// 3 is ls's own.
		{[]string{"sh", "-c", "echo $GREETING; cat; ls /proc/self/fd | tr '\n' ' '; exit 4"}, 4, 0, "hello\n0 1 2 3 "},
		{
			[]string{"sh", "-c", "echo path [${PYTHONPATH-none}]"}, 0, 0, "path [" +
				cmp.Or(os.Getenv("PYTHONPATH"), "none") + "]",
		},
		{[]string{"sh", "-c", "kill -9 $$"}, -1, 9, ""},
		{[]string{"sh", "-c", "[ $(ps -o sid= -p $$) = $$ ]"}, 0, 0, ""}, // a session of its own
		{[]string{"no-such-command"}, 127, 0, "cannot run no-such-command: no such file"},
		{[]string{"/etc/passwd"}, 126, 0, "cannot run /etc/passwd: permission denied"},
	} {
		run := int32(i + 1)
		c.prepare(run, 0)
		c.launch(c.command(run, test.words...))
		if x := c.exited(run); x.GetCode() != test.code || x.GetSignal() != test.signal {
			t.Errorf("%q exited %v", test.words, x)
		}
		if text := c.text(run); !strings.Contains(text, test.says) {
			t.Errorf("%q wrote %q", test.words, text)
		}
		c.endRun(run, 0)
	}
	c.prepare(9, 0)
	c.launch(c.cell(9, "print('never')"))
	if x := c.exited(9); x.GetCode() != 127 {
		t.Errorf("a program without a Python exited %v", x)
	}
}

// TestPlainRunsPython: a program that is Python's after all has an interpreter of its own.
func TestPlainRunsPython(t *testing.T) {
	t.Parallel()
	c := newCoordinator(t, &clusterpb.WarmUp{Plain: true, Python: plainPython(t)})
	c.runAgent(nil)
	c.warmed()
	c.prepare(1, 0)
	c.launch(c.cell(1, "import tfcluster\nprint('task', tfcluster.context().task_index)\nraise ValueError('so it is')"))
	if x := c.exited(1); x.GetCode() != 1 || !strings.Contains(x.GetException(), "so it is") {
		t.Errorf("exited %v", x)
	}
	if text := c.text(1); !strings.Contains(text, "task 0") {
		t.Errorf("wrote %q", text)
	}
}

// TestPlainLeavesNothing: a command's children end with it, also one that left its
// session, and so does what it leaves behind at its own end.
func TestPlainLeavesNothing(t *testing.T) {
	t.Parallel()
	c := plain(t)
	for run, how := range map[int32]string{
		1: "exec sleep 600", 2: "exit 0", 3: "trap '' TERM; while :; do sleep 0.1; done",
	} {
		name := fmt.Sprintf("child%d", run)
		c.prepare(run, 0)
		said := filepath.Join(t.TempDir(), name)
		c.launch(c.command(run, "sh", "-c", "setsid sh -c 'echo "+name+" $$; echo so > "+said+
			"; exec sleep 601' & until [ -s "+said+" ]; do sleep 0.02; done; "+how))
		child := c.pidIn(name)
		if run != 2 {
			c.endRun(run, 200*time.Millisecond)
		}
		c.exited(run)
		awaitEnd(t, name, child)
		c.endRun(run, 0)
	}
}

// TestPlainForkerKilled: its tasks die with it, and the next one has another.
func TestPlainForkerKilled(t *testing.T) {
	t.Parallel()
	c := plain(t)
	c.prepare(1, 0)
	c.launch(c.command(1, "sh", "-c", "echo parent $PPID; echo task $$; sleep 600 & echo child $!; wait"))
	forker, task, child := c.pidIn("parent"), c.pidIn("task"), c.pidIn("child")
	if err := unix.Kill(forker, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if x := c.exited(1); !strings.Contains(x.GetReason(), "that tasks are forked from (the zygote) ended unexpectedly") {
		t.Errorf("exited %v", x)
	}
	awaitEnd(t, "the task", task)
	awaitEnd(t, "its child", child)
	c.endRun(1, 0)
	c.prepare(2, 0)
	c.launch(c.command(2, "sh", "-c", "exit 5"))
	if x := c.exited(2); x.GetCode() != 5 {
		t.Errorf("the next one exited %v", x)
	}
}

// TestForkerDropsNonsense: what is no request ends that connection and its tasks alone.
func TestForkerDropsNonsense(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "f.sock")
	forker := exec.Command(os.Args[0], forking.ForkerCommand, "--socket", path) // it would reap this process's children
	forker.Stderr = t.Output()
	if err := forker.Start(); err != nil {
		t.Fatal(err)
	}
	dial := func() *net.UnixConn {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
			conn, err := interpreter.DialPeer(path)
			if err == nil {
				return conn
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	stays := dial()
	defer stays.Close()
	for _, words := range []string{"{\n", "[]\n", `{"op":"spawn","id":"x","argv":["true"]}` + "\n", `{"op":7}` + "\n"} {
		conn := dial()
		if _, err := conn.Write([]byte(words)); err != nil {
			t.Fatal(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		rest := make([]byte, 1<<10)
		for err := error(nil); err == nil; {
			if _, err = conn.Read(rest); os.IsTimeout(err) {
				t.Errorf("%q was taken", words)
			}
		}
		conn.Close()
	}
	z := interpreter.NewZygote(stays)
	if _, err := z.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
	z.Close()
	if err := forker.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("its socket is left: %v", err)
	}
}

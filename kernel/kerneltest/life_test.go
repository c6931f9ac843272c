package kerneltest_test

import (
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// Ensure an interrupt reaches what is running, and has no effect if nothing is.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	interrupt := func() {
		t.Helper()
		id := f.SendControl("interrupt_request", map[string]any{})
		f.ReplyControl("interrupt_reply", id)
	}
	for _, code := range []string{"print('up', flush=True)\nimport time; time.sleep(60)", "%toy lines 100000 10"} {
		id := f.Execute(code)
		f.Begin(id)
		f.Pub("stream", id)
		interrupt()
		if r := f.Executed(id, "error"); r.EName != "KeyboardInterrupt" {
			t.Errorf("%s ended with %s", code, r.EName)
		}
		f.Until(id)
	}
	interrupt()
	if r, text := f.Run("print('alive')"); r.Status != "ok" || text != "alive\n" {
		t.Errorf("after an idle interrupt: %+v %q", r, text)
	}
}

// Ensure a killed Python fails the running cell and other requests, and that a new one
// continues the count.
func TestChildDies(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	f.Run("x = 1")
	dies, after := f.Execute("import os, time; time.sleep(0.5); os.kill(os.getpid(), 9)"), f.Execute("%toy lines 1 0")
	behind := f.Send("complete_request", map[string]any{"code": "x", "cursor_pos": 1})
	r := f.Executed(dies, "error")
	if r.EName != "PythonDied" || !strings.Contains(r.EValue, "killed by signal 9 (SIGKILL); a new one is starting") {
		t.Errorf("%s: %s", r.EName, r.EValue)
	}
	f.Executed(after, "aborted")
	f.Until(after)
	var c wire.ExecuteReply
	if err := f.Reply("complete_reply", behind).Unmarshal(&c); err != nil || c.EName != "PythonDied" {
		t.Errorf("completion behind it: %+v %v", c, err)
	}
	f.Until(behind)
	if r, text := f.Run("print('x' in globals())"); text != "False\n" || r.ExecutionCount != 3 {
		t.Errorf("the new Python: [%d] %q", r.ExecutionCount, text)
	}
	f.Run("%toy value v")
	if _, text := f.Run("print(In[4], Out[4], len(In))"); text != "%toy value v v 6\n" {
		t.Errorf("the new Python's In: %q", text)
	}
	f.Drain()
	f.NothingLeft()
}

// Ensure a concurrent cell runs while Python is stopped, and a shutdown is answered.
func TestHangingChild(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	_, text := f.Run("import os; print(os.getpid())")
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	now := f.Execute("%toy lines 1 0 --now")
	f.Executed(now, "ok")
	f.Until(now)
	id := f.SendControl("shutdown_request", wire.Shutdown{Restart: true})
	f.ReplyControl("shutdown_reply", id)
	// The test process has no other child to end: Start's cleanup waits for Run, which ends
	// with the child.
}

// Ensure the error of a Python that does not start contains its output, and that matched cells
// still run.
func TestPythonMissing(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}, "--no-such-option-of-ipykernel",
		"--IPKernelApp.connection_file=/nowhere/at/all.json")
	waiting := f.Execute("0")
	if r := f.Executed(waiting, "error"); !strings.Contains(r.EValue,
		"is not started again; correct the cause, then restart the kernel; its last output: ") {
		t.Errorf("the cell that waited: %+v", r)
	}
	f.Until(waiting)
	id := f.Send("kernel_info_request", map[string]any{})
	if m := f.Reply("kernel_info_reply", id); !strings.Contains(string(m.Content()), "Python does not keep running") {
		t.Errorf("kernel_info: %s", m.Content())
	}
	f.Until(id)
	cell := f.Execute("1")
	if r := f.Executed(cell, "error"); r.EName != "PythonDied" {
		t.Errorf("%+v", r)
	}
	f.Until(cell)
	if r, text := f.Run("%toy lines 1 0"); r.Status != "ok" || text != "toy 0\n" {
		t.Errorf("matched cell: %+v %q", r, text)
	}
}

// Ensure forged and repeated messages have no effect.
func TestForgedAndRepeated(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	forged := wire.NewSigner("another key").MakeRequest("forged", "execute_request",
		wire.ExecuteRequest{Code: "print('forged')"})
	twice := wire.NewSigner(f.Conn.Key).MakeRequest("twice", "execute_request",
		wire.ExecuteRequest{Code: "print('once')", UserExpressions: map[string]any{}})
	f.SendRaw(forged)
	f.SendRaw([][]byte{[]byte("no message at all")})
	f.SendRaw(twice)
	f.SendRaw(twice)
	f.Executed("twice", "ok")
	if text := f.Text(f.Until("twice")); text != "once\n" {
		t.Errorf("printed %q", text)
	}
	f.NothingLeft()
}

// Ensure requests to subshells are forwarded, and a matched cell in one runs concurrently with
// the main shell's.
func TestSubshell(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
	id := f.SendControl("create_subshell_request", map[string]any{})
	var created struct {
		ID string `json:"subshell_id"`
	}
	if err := f.ReplyControl("create_subshell_reply", id).Unmarshal(&created); err != nil || created.ID == "" {
		t.Fatalf("create_subshell: %+v %v", created, err)
	}
	f.Until(id)
	f.Run("import threading; done = threading.Event()")
	busy := f.Execute("assert done.wait(60)")
	f.Begin(busy)
	for _, code := range []string{"print('sub')", "%toy lines 1 0"} {
		sub := f.SendSubshell(created.ID, "execute_request",
			wire.ExecuteRequest{Code: code, UserExpressions: map[string]any{}})
		f.Executed(sub, "ok")
		f.Until(sub)
	}
	f.SendSubshell(created.ID, "execute_request",
		wire.ExecuteRequest{Code: "done.set()", Silent: true, UserExpressions: map[string]any{}})
	f.Until(busy)
}

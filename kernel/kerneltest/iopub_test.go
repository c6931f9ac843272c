package kerneltest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
	"github.com/tfcluster/tfcluster/kernel/wire"
)

// interruptIn returns a cell that runs a statement and is interrupted at the moment at which a
// function of Python's threading module, file threading.py, has called a lock's method.
func interruptIn(function, method, statement string) string {
	return fmt.Sprintf(`import sys, threading
def interrupt(frame, event, arg):
    code = frame.f_code
    if (event == "c_return" and arg.__name__ == %q and code.co_name == %q
            and code.co_filename == threading.__file__):
        sys.setprofile(None)
        raise KeyboardInterrupt
sys.setprofile(interrupt)
try:
    %s
finally:
    sys.setprofile(None)`, method, function, statement)
}

// interruptedEvent is a cell that is interrupted as soon as it has the lock of an Event.
func interruptedEvent(statement string) string {
	return interruptIn("__enter__", "__enter__", statement)
}

// Ensure the child works after an interrupt at a moment at which Python's threading module
// would leave a lock locked, or take a thread for ended.
func TestInterruptInThreading(t *testing.T) {
	t.Parallel()
	for name, code := range map[string]string{
		"is_alive": interruptIn("_wait_for_tstate_lock", "acquire",
			"get_ipython().kernel.iopub_thread.schedule(lambda: None)"),
		"flush":   interruptedEvent(`print("x", flush=True)`),
		"history": interruptedEvent("get_ipython().history_manager.save_flag.set()"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := kerneltest.Start(t, &kerneltest.Toy{}).Ready()
			f.Run(code)
			for _, after := range []string{"print('runs')", "await __import__('asyncio').sleep(0); print('runs')"} {
				if r, text := f.Run(after); r.Status != "ok" || text != "runs\n" {
					t.Errorf("%s: %+v %q", after, r, text)
				}
			}
			if _, text := f.Run("print(get_ipython().kernel.iopub_thread.thread.is_alive())"); text != "True\n" {
				t.Errorf("is the IOPub thread alive: %q", text)
			}
			unmixed(t, f)
		})
	}
}

// unmixed checks that messages which two threads of the child publish at the same time arrive
// whole.
func unmixed(t *testing.T, f *kerneltest.Frontend) {
	t.Helper()
	const displays, requests = 1000, 100
	cell := f.Execute(fmt.Sprintf("for i in range(%d): display(i)", displays))
	missing := map[string]int{cell: displays + 3} // busy, execute_input and idle
	for range requests {
		missing[f.SendControl("kernel_info_request", map[string]any{})] = 2 // busy and idle
	}
	signer := wire.NewSigner(f.Conn.Key)
	for left, end := displays+3+2*requests, time.Now().Add(playLimit); left > 0 && time.Now().Before(end); {
		channel, m := f.Next(time.Until(end))
		if channel != "iopub" {
			continue
		}
		if !signer.Genuine(m) {
			t.Errorf("not as it was signed: %.200q", m.Frames)
		}
		missing[m.ParentID()]--
		left--
	}
	for id, n := range missing {
		if n != 0 {
			t.Errorf("%d messages of %s are missing", n, id)
		}
	}
}

package proc

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestThreads: this process's threads, and what is read of a thread that sleeps.
func TestThreads(t *testing.T) {
	t.Parallel()
	threads := Threads(os.Getpid())
	if len(threads) < 2 || threads[0].ID != os.Getpid() || threads[0].Name == "" || threads[0].State == "" {
		t.Fatalf("threads %+v", threads)
	}
	var used time.Duration
	for end := time.Now().Add(time.Minute); used == 0 && time.Now().Before(end); { // until it has used a tick
		for _, x := range Threads(os.Getpid()) {
			used += x.CPU
		}
	}
	if used <= 0 {
		t.Error("this process has used no CPU")
	}
	sleep := exec.Command("sleep", "600")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	pid := sleep.Process.Pid
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		x, ok := ReadThread(pid, pid)
		if ok && x.State == "S" && x.Name == "sleep" && Command(pid) == "sleep 600" {
			if x.WaitChannel != "" && !strings.Contains(x.WaitChannel, "sleep") {
				t.Errorf("it sleeps in %q", x.WaitChannel)
			}
			break
		}
		if time.Now().After(end) {
			t.Fatalf("thread %+v, %v of %q", x, ok, Command(pid))
		}
	}
	if err := sleep.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = sleep.Wait() // it was killed
	if _, ok := ReadThread(pid, pid); ok || Threads(pid) != nil || Command(pid) != "" {
		t.Error("a process that has ended has threads")
	}
}

// TestSignal: whether a process catches a signal.
func TestSignal(t *testing.T) {
	t.Parallel()
	const number = 64
	come := make(chan os.Signal, 1)
	signal.Notify(come, unix.Signal(number))
	defer signal.Stop(come)
	if s, ok := Signal(os.Getpid(), os.Getpid(), number); !ok || !s.Caught || s.Pending {
		t.Errorf("%+v, %v", s, ok)
	}
	for _, wrong := range []int{0, 65, -1} {
		if _, ok := Signal(os.Getpid(), os.Getpid(), wrong); ok {
			t.Errorf("signal %d is read", wrong)
		}
	}
	if _, ok := Signal(os.Getpid(), 1<<22+1, number); ok {
		t.Error("a signal of no thread is read")
	}
}

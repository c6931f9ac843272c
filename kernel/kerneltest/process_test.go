package kerneltest_test

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// startProcess runs the toy kernel as a separate process and returns it with the PID of its
// Python.
func startProcess(t *testing.T) (*exec.Cmd, int) {
	t.Helper()
	python := kerneltest.Python(t)
	binary, err := toyKernel()
	if err != nil {
		t.Fatal(err)
	}
	file, conn := kerneltest.NewConnection(t)
	cmd := exec.Command(binary, file, python)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, unless the test failed
	_, text := kerneltest.Connect(t, conn).Ready().Run("import os; print(os.getpid())")
	pid, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, pid
}

// gone waits until a process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, os.ErrNotExist) || strings.Contains(string(stat), ") Z ") {
			return
		}
	}
	t.Errorf("process %d still exists", pid)
}

// Ensure a killed kernel leaves no Python process.
func TestKilledKernelLeavesNothing(t *testing.T) {
	t.Parallel()
	cmd, pid := startProcess(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	gone(t, pid)
}

// Ensure SIGTERM shuts a kernel down.
func TestTerminatedKernelEndsInOrder(t *testing.T) {
	t.Parallel()
	cmd, pid := startProcess(t)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the kernel ended with %v", err)
	}
	gone(t, pid)
}

// Ensure SIGINT, which clients of interrupt mode "signal" send, interrupts and does not end the
// kernel.
func TestSignalledKernelContinues(t *testing.T) {
	t.Parallel()
	cmd, pid := startProcess(t)
	for range 3 {
		if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(200 * time.Millisecond) // the kernel would have begun to end by now
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("Python has ended: %v", err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the kernel ended with %v", err)
	}
}

package state

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// TestProcess: Stopped distinguishes a stopped process from a running one, and Kill ends only the
// process that was recorded.
func TestProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waited := make(chan struct{})
	go func() { _ = cmd.Wait(); close(waited) }()
	defer func() { _ = cmd.Process.Kill(); <-waited }()
	p := ProcessOf(cmd.Process.Pid)
	if !p.Alive() || p.Stopped() {
		t.Fatalf("a new process is alive: %v, stopped: %v", p.Alive(), p.Stopped())
	}
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); !p.Stopped(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a stopped process is not seen to be")
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	other := p
	other.Start++ // another process had the number
	if err := other.Kill(ctx); err != nil || !p.Alive() {
		t.Errorf("the end of a process that is gone: %v; another lives: %v", err, p.Alive())
	}
	if err := p.Kill(ctx); err != nil || p.Alive() || p.Stopped() {
		t.Errorf("Kill returns %v, it lives: %v", err, p.Alive())
	}
}

package kerneltest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel"
)

// Python returns an interpreter with ipykernel: $TFCLUSTER_TEST_PYTHON or the .venv of an
// enclosing folder. Without one it skips the test.
func Python(t testing.TB) string {
	t.Helper()
	candidates := []string{os.Getenv("TFCLUSTER_TEST_PYTHON")}
	for dir, err := os.Getwd(); err == nil && dir != "/"; dir = filepath.Dir(dir) {
		candidates = append(candidates, filepath.Join(dir, ".venv", "bin", "python"))
	}
	for _, p := range candidates {
		if p != "" && exec.Command(p, "-c", "import ipykernel, zmq").Run() == nil {
			return p
		}
	}
	t.Skip("no Python with ipykernel: set TFCLUSTER_TEST_PYTHON")
	return ""
}

// endLimit is the timeout for a kernel to end.
const endLimit = 60 * time.Second

// Start runs a kernel with an Interceptor in this process until the test ends, and connects to
// it. args are added to the child's command line.
func Start(t testing.TB, i kernel.Interceptor, args ...string) *Frontend {
	t.Helper()
	python := Python(t)
	file, conn := NewConnection(t)
	k, err := kernel.New(
		kernel.Config{ConnectionFile: file, Python: python, Interceptor: i, ChildArgs: args, Banner: "toy"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the kernel ended with: %v", err)
			}
		case <-time.After(endLimit):
			t.Error("the kernel does not end")
		}
	})
	return Connect(t, conn)
}

// StartPlain runs a plain ipykernel until the test ends, and connects to it. The channel is
// closed when it has ended.
func StartPlain(t testing.TB) (*Frontend, <-chan struct{}) {
	t.Helper()
	python := Python(t)
	file, conn := NewConnection(t)
	cmd := exec.Command(python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", file)
	cmd.Env = append(os.Environ(), "JPY_PARENT_PID="+strconv.Itoa(os.Getpid())) // it ends when this process is killed
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                       // interrupts are sent to its process group
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		_ = cmd.Wait() // killed, or ended by an interrupt
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-dead
	})
	return Connect(t, conn), dead
}

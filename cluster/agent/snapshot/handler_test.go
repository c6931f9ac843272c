package snapshot

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestRegister: a program's message about its handler is not trusted.
func TestRegister(t *testing.T) {
	t.Parallel()
	memory := func(name string) int {
		fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	file, err := os.CreateTemp(t.TempDir(), "memfd:tfcluster-stacks")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ours, other := memory("tfcluster-stacks"), memory("own")
	for _, tt := range []struct {
		name string
		pid  int
		r    Registration
		want string
	}{
		{"sound", os.Getpid(), Registration{Signal: 37, Descriptor: ours}, ""},
		{"SIGKILL", os.Getpid(), Registration{Signal: 9, Descriptor: ours}, "not one of the real-time signals"},
		{"no signal", os.Getpid(), Registration{Signal: 65, Descriptor: ours}, "not one of the real-time signals"},
		{"another memory file", os.Getpid(), Registration{Signal: 37, Descriptor: other}, "is not /memfd:tfcluster-stacks"},
		{"a file on disk", os.Getpid(), Registration{
			Signal:     37,
			Descriptor: int(file.Fd()),
		}, "is not /memfd:tfcluster-stacks"},
		{"no descriptor", os.Getpid(), Registration{Signal: 37, Descriptor: -1}, "is not /memfd:tfcluster-stacks"},
		{"no process", 0, Registration{Signal: 37, Descriptor: ours}, "is not /memfd:tfcluster-stacks"},
	} {
		s := NewSampler(nil)
		err := s.Register(tt.pid, tt.r)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		s.Close()
	}
}

// TestHandlerOfNoThread: no signal is sent to a thread that does not exist, or has no handler for it.
func TestHandlerOfNoThread(t *testing.T) {
	t.Parallel()
	fd, err := unix.MemfdCreate("tfcluster-stacks", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	memory := os.NewFile(uintptr(fd), "memory")
	defer memory.Close()
	child, err := os.StartProcess("/bin/sleep", []string{"sleep", "600"},
		&os.ProcAttr{Files: []*os.File{nil, nil, nil, memory}})
	if err != nil {
		t.Fatal(err)
	}
	defer child.Wait() //nolint:errcheck // it is killed
	defer child.Kill() //nolint:errcheck // it may have ended
	for thread, want := range map[int]string{child.Pid: "has replaced the handler", child.Pid + 1_000_000: "has ended"} {
		s := NewSampler(nil)
		if err := s.Register(child.Pid, Registration{Signal: 37, Descriptor: 3, Thread: thread}); err != nil {
			t.Fatal(err)
		}
		if err := s.handler.stacks(t.Context(), &clusterpb.Snapshot{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("thread %d: %v, want %s", thread, err, want)
		}
		s.Close()
	}
	if err := child.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the process has ended: %v", err)
	}
}

//go:build (cgo || verbs) && (amd64 || arm64)

package transport

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// deviceFile is the file that libibverbs opens, in the guest of make test-rdma.
const deviceFile = "/dev/infiniband/uverbs0"

// asNobody names the variable with the device. It makes a test run as a user without privileges.
const asNobody = "TFCLUSTER_TEST_RDMA_NOBODY"

// TestUnprivileged: on a real device, a user who may not open it, and a user who may lock only 64 kB, get an error of
// one line.
func TestUnprivileged(t *testing.T) {
	device := os.Getenv(realDevice)
	if device == "" || os.Getuid() != 0 {
		t.Skip("it needs an RDMA device, and to be root: make test-rdma")
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []struct {
		mode   os.FileMode
		locked uint64
		want   string
	}{
		{0o600, unix.RLIM_INFINITY, "open " + deviceFile + " of " + device + ": permission denied"},
		{
			0o666, 64 << 10, "register 1048576 bytes with " + device +
				": cannot allocate memory: this process may lock 64 kB of memory: raise ulimit -l of the executors",
		},
		{0o666, unix.RLIM_INFINITY, "registered"},
	} {
		if err := os.Chmod(deviceFile, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: c.locked, Max: unix.RLIM_INFINITY}); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestAsNobody$")
		cmd.Env = append(os.Environ(), asNobody+"="+device)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if said, _, _ := strings.Cut(string(out), "\n"); err != nil || said != c.want {
			t.Errorf("%v\n%s\nwant %s", err, out, c.want)
		}
	}
}

// TestAsNobody prints the result of the registration of memory.
func TestAsNobody(t *testing.T) {
	device := os.Getenv(asNobody)
	if device == "" {
		t.Skip("TestUnprivileged runs it as another user")
	}
	v, err := OpenVerbs(DefaultVerbs(device, 1, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer v.Close()
	region, err := v.Register(segment(t, 1<<20, 1))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer region.Close()
	fmt.Println("registered")
}

package clustertest

import (
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
)

// namespaces counts the namespaces of this process.
var namespaces atomic.Int32

// Namespace creates a network namespace for the test, connected to this one by a pair of interfaces. It
// returns the namespace's name and the addresses of this and the other end. It skips the test if the
// machine does not permit it.
func Namespace(t testing.TB) (name, here, there string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("missing: root, to make network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing: ip (iproute2), to make network namespaces")
	}
	// Packages are tested in parallel, each in a separate process.
	id := (os.Getpid()*4 + int(namespaces.Add(1))%4) % (1 << 14)
	net := fmt.Sprintf("10.%d.%d", 192+id>>8, id&255)
	name, here, there = fmt.Sprintf("tfc-%d", id), net+".1", net+".2"
	commands := fmt.Sprintf(`ip netns add %[1]s
ip link add %[1]sh type veth peer name %[1]st netns %[1]s
ip addr add %[2]s/24 dev %[1]sh; ip link set %[1]sh up
ip -n %[1]s addr add %[3]s/24 dev %[1]st; ip -n %[1]s link set %[1]st up; ip -n %[1]s link set lo up
ip netns exec %[1]s unshare --mount true`, name, here, there)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() }) // deletes its interfaces too
	if out, err := exec.Command("sh", "-ec", commands).CombinedOutput(); err != nil {
		t.Skipf("missing: network and mount namespaces: %v: %s", err, out)
	}
	return name, here, there
}

package hosts

import (
	"bufio"
	"context"
	_ "embed" // the program of a host's first process
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

//go:embed init.sh
var initScript string

// User is the name of the user on every host; Home is the user's folder there.
const (
	User = "user"
	Home = "/home/" + User
)

// killDelay is how long a command's output is read after its end was ordered.
const killDelay = 2 * time.Second

// Hosts are the hosts of one test.
type Hosts struct {
	t       testing.TB
	dir     string   // with each host's disk
	lock    *os.File // of the folder; held while the test lives
	outer   []string // enters the user namespace of an unprivileged test; nil for root
	network *node    // the switch
	nodes   map[string]*node
	names   []string
	relays  map[string]*relay // of Delay, by host
	id      int               // of their network among those of this machine's tests
}

// networks counts the networks of hosts of this process.
var networks atomic.Int32

// maxNetworks is the number of networks in 10.192.0.0/10 with 256 addresses each.
const maxNetworks = 1 << 14

// address returns an address in the network of the hosts.
func (h *Hosts) address(n int) string { return fmt.Sprintf("10.%d.%d.%d", 192+h.id>>8, h.id&255, n) }

// node is a host, or the switch.
type node struct {
	name, address, disk string
	pid                 int // its first process, which is the first of its own namespace of processes
}

// New starts hosts with these names, which see the shared folders, read-only, at their own paths. They end with the
// test. The test is skipped where this machine does not permit them.
func New(t testing.TB, shares []string, names ...string) *Hosts {
	t.Helper()
	for _, program := range []string{"ip", "nft", "unshare", "nsenter", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			skip(t, "missing: %s (iproute2, nftables and util-linux make hosts)", program)
		}
	}
	dir, lock, err := newFolder()
	if err != nil {
		t.Fatal(err)
	}
	h := &Hosts{t: t, dir: dir, lock: lock, nodes: map[string]*node{}, names: names, relays: map[string]*relay{}}
	h.id = (os.Getpid()*4 + int(networks.Add(1))%4) % maxNetworks // packages are tested side by side, each by a process
	t.Cleanup(h.close)
	if os.Getuid() != 0 {
		holder := h.hold("unshare", "--user", "--map-root-user", "--mount", "bash", "-c",
			"echo ready; while read -r _; do :; done")
		h.outer = []string{"nsenter", "-t", strconv.Itoa(holder), "-U", "-m", "--preserve-credentials", "--"}
	}
	h.network = &node{name: "switch"}
	h.network.pid = child(t, h.hold("unshare", "--net", "--fork", "--kill-child", "bash", "-ec",
		"ip link add br0 type bridge; ip link set br0 up; echo ready; while read -r _; do :; done"))
	for i, name := range names {
		h.nodes[name] = &node{name: name, address: h.address(i + 1), disk: filepath.Join(dir, name)}
	}
	for _, name := range names {
		if err := h.boot(h.nodes[name], shares); err != nil {
			t.Fatalf("start %s: %v", name, err)
		}
	}
	return h
}

// skip skips the test with the line that tells of it in the output of CI.
func skip(t testing.TB, format string, args ...any) {
	t.Helper()
	t.Skipf("hosts: skipped: "+format, args...)
}

// boot starts a host and connects it with the switch.
func (h *Hosts) boot(n *node, shares []string) error {
	if err := n.format(h); err != nil {
		return err
	}
	words := append([]string{
		"unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc",
		"--propagation", "private", "bash", "-c", initScript, "init", n.name, n.disk,
	}, n.places(shares)...)
	n.pid = child(h.t, h.hold(words...))
	pid := strconv.Itoa(n.pid)
	return errors.Join(
		h.ip("link", "add", "name", n.name, "type", "veth", "peer", "name", "eth0", "netns", pid),
		h.ip("link", "set", "dev", n.name, "master", "br0", "up"), h.inside(n, "ip", "link", "set", "lo", "up"),
		h.inside(n, "ip", "link", "set", "eth0", "up"), h.inside(n, "ip", "addr", "add", n.address+"/24", "dev", "eth0"),
	)
}

// format makes a host's disk.
func (n *node) format(h *Hosts) error {
	for _, folder := range []string{"tmp", "var-tmp", "home/" + User, "etc"} {
		if err := os.MkdirAll(filepath.Join(n.disk, folder), 0o755); err != nil {
			return err
		}
	}
	id, err := os.ReadFile("/proc/sys/kernel/random/uuid")
	if err != nil {
		return err
	}
	for _, folder := range []string{"tmp", "var-tmp"} {
		err = errors.Join(err, os.Chmod(filepath.Join(n.disk, folder), os.ModeSticky|0o777))
	}
	for name, text := range map[string]string{
		"hosts": h.table(), "hostname": n.name + "\n", "resolv.conf": "", "boot_id": string(id),
		"machine-id": strings.ReplaceAll(string(id), "-", ""),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(n.disk, "etc", name), []byte(text), 0o644))
	}
	return err
}

// table returns the contents of /etc/hosts, which names every host: there is no name server.
func (h *Hosts) table() string {
	text := "127.0.0.1 localhost\n::1 localhost ip6-localhost\n"
	for _, name := range h.names {
		text += fmt.Sprintf("%s %s\n", h.nodes[name].address, name)
	}
	return text
}

// places returns, for each shared folder and the folder that it links to, the folder and where a host sees it. What
// lies below a folder that each host has of its own is put there.
func (n *node) places(shares []string) []string {
	var words []string
	for _, share := range shares {
		if real, err := filepath.EvalSymlinks(share); err == nil && real != share {
			words = append(words, n.places([]string{real})...)
		}
		place := share
		for _, own := range []string{"tmp", "home"} {
			if rest, below := strings.CutPrefix(share, "/"+own+"/"); below {
				place = filepath.Join(n.disk, own, rest)
			}
		}
		words = append(words, share, place)
	}
	return words
}

// hold starts a process that prints "ready" and then lives until its input ends, and returns its PID.
func (h *Hosts) hold(words ...string) int {
	h.t.Helper()
	words = append(slices.Clone(h.outer), words...)
	cmd := exec.Command(words[0], words[1:]...)
	var problem strings.Builder
	cmd.Stderr = &problem
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait() // it ends by the end of its input, or was killed
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		_ = in.Close()
		_ = cmd.Wait()
		skip(h.t, "this machine does not permit %s: %s", strings.Join(words[:min(len(words), 12)], " "),
			strings.TrimSpace(problem.String()))
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	return cmd.Process.Pid
}

// child returns the PID of the only child of a process.
func child(t testing.TB, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	first, err := strconv.Atoi(strings.Fields(string(b) + " x")[0])
	if err != nil {
		t.Fatalf("process %d has the children %q, want one", pid, b)
	}
	return first
}

// Address returns a host's address.
func (h *Hosts) Address(name string) string { return h.nodes[name].address }

// Path returns where this machine sees a file of a host's own folders /tmp and /home.
func (h *Hosts) Path(name, path string) string { return filepath.Join(h.nodes[name].disk, path) }

// Command returns a command on a host, in the user's folder and with the environment of a login and more variables.
// When ctx ends, it is killed with its children in its process group.
func (h *Hosts) Command(ctx context.Context, name string, env []string, words ...string) *exec.Cmd {
	n := h.nodes[name]
	enter := append(slices.Clone(h.outer), "nsenter", "-t", strconv.Itoa(n.pid), "-m", "-u", "-i", "-n", "-p", "--",
		"env", "-i", "-C", Home, "HOME="+Home, "USER="+User, "LANG=C.UTF-8", "TERM=dumb",
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	enter = append(append(enter, env...), words...)
	cmd := exec.CommandContext(ctx, enter[0], enter[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killDelay
	return cmd
}

// Run runs a command on a host and returns its output.
func (h *Hosts) Run(name string, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), clustertest.Deadline)
	defer cancel()
	out, err := h.Command(ctx, name, nil, words...).CombinedOutput()
	return string(out), err
}

// inside runs a program of this machine in a node's network.
func (h *Hosts) inside(n *node, words ...string) error {
	enter := append(slices.Clone(h.outer), "nsenter", "-t", strconv.Itoa(n.pid), "-n", "--")
	words = append(enter, words...)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s on %s: %w: %s", strings.Join(words[len(enter):], " "), n.name, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

func (h *Hosts) ip(words ...string) error {
	return h.inside(h.network, append([]string{"ip"}, words...)...)
}

// close ends the relays. The hosts end with their first processes, whose cleanups run first.
func (h *Hosts) close() {
	for _, r := range h.relays {
		r.stop()
	}
	if err := errors.Join(os.RemoveAll(h.dir), h.lock.Close()); err != nil {
		h.t.Errorf("remove the disks of the hosts: %v", err)
	}
}

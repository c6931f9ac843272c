package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// TestHosts: what a host has of its own, what it shares, and the faults of its network.
func TestHosts(t *testing.T) {
	t.Parallel()
	share := t.TempDir()
	if err := os.WriteFile(filepath.Join(share, "shared"), []byte("for all"), 0o644); err != nil {
		t.Fatal(err)
	}
	h := New(t, []string{share}, "a", "b", "c")
	run := func(name string, words ...string) string {
		t.Helper()
		out, err := h.Run(name, words...)
		if err != nil {
			out += err.Error()
		}
		return strings.TrimSpace(out)
	}
	for _, tt := range []struct{ script, want string }{
		{"hostname", "b"},
		{"cat " + share + "/shared", "for all"},
		{"touch " + share + "/x /etc/x 2>/dev/null || echo read-only", "read-only"},
		{"echo own >/tmp/x; echo own >/dev/shm/x; echo own >~/x; pwd; cat /tmp/x", Home + "\nown"},
		{"ls /sys/class/net", "eth0\nlo"},
		{"tr '\\0' ' ' </proc/1/cmdline | grep -c ' init b '", "1"}, // its own first process
		{"hostname -i", h.Address("b")},
	} {
		if got := run("b", "bash", "-c", tt.script); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.script, got, tt.want)
		}
	}
	if got := run("c", "ls", "/tmp", "/dev/shm"); strings.Contains(got, "x\n") {
		t.Errorf("c sees files of b: %q", got)
	}
	if b, err := os.ReadFile(h.Path("b", "tmp/x")); string(b) != "own\n" {
		t.Errorf("this machine sees %q of b's file: %v", b, err)
	}
	if a, b := run("a", "cat", "/proc/sys/kernel/random/boot_id"),
		run("b", "cat", "/proc/sys/kernel/random/boot_id"); a == b {
		t.Errorf("two hosts have the boot ID %s", a)
	}
	reaches := func(from, to string) bool { return h.reaches(from, to, time.Second) }
	want := func(when string, ab, ac bool) {
		t.Helper()
		for to, reached := range map[string]bool{"b": ab, "c": ac} {
			if reached { // a cable that was plugged in takes a moment
				clustertest.WaitFor(t, when+": a reaches "+to, func() bool { return reaches("a", to) })
			} else if reaches("a", to) {
				t.Errorf("%s: a reaches %s", when, to)
			}
		}
	}
	want("at first", true, true)
	h.Cut("a", "c")
	want("cut", true, false)
	h.Heal()
	want("healed", true, true)
	h.Down("b")
	want("down", false, true)
	h.Up("b")
	want("up", true, true)
	h.Names("a", h.Address("c")+" b\n")
	if got := run("a", "getent", "hosts", "b"); !strings.HasPrefix(got, h.Address("c")) {
		t.Errorf("with another name: %q", got)
	}
	h.Interface("c", "eth1", "10.78.0.3/24")
	if got := run("c", "hostname", "-I"); got != h.Address("c")+" 10.78.0.3" {
		t.Errorf("with a second interface: %q", got)
	}
}

// reaches reports whether a host answers another within a time, by refusing a connection to a port that nothing uses.
func (h *Hosts) reaches(from, to string, within time.Duration) bool {
	_, err := h.Run(from, "timeout", fmt.Sprint(within.Seconds()), "bash", "-c", "exec 3<>/dev/tcp/"+h.Address(to)+"/9")
	return err == nil || err.Error() != "exit status 124"
}

// TestFirewall: a connection to a closed port is dropped, one to an open port is not.
func TestFirewall(t *testing.T) {
	t.Parallel()
	h := New(t, nil, "a", "b")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, port := range []string{"7000", "7001"} {
		cmd := h.Command(ctx, "b", nil, "bash", "-c", "exec python3 -m http.server --bind 0.0.0.0 "+port)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() { cancel(); _ = cmd.Wait() }()
	}
	dial := func(port string) string {
		_, err := h.Run("a", "timeout", "1", "bash", "-c", "exec 3<>/dev/tcp/b/"+port)
		return fmt.Sprint(err)
	}
	clustertest.WaitFor(t, "the servers", func() bool { return dial("7000") == "<nil>" && dial("7001") == "<nil>" })
	h.Firewall("b", "7001")
	if closed, open := dial("7000"), dial("7001"); closed != "exit status 124" || open != "<nil>" {
		t.Errorf("a closed port: %s, an open one: %s", closed, open)
	}
	h.NoFirewall("b")
	if err := dial("7000"); err != "<nil>" {
		t.Errorf("without the firewall: %s", err)
	}
}

// TestDelay: packets are late, and lost.
func TestDelay(t *testing.T) {
	t.Parallel()
	h := New(t, nil, "a", "b")
	const delay = 100 * time.Millisecond
	h.Delay("b", delay, 0)
	began := time.Now()
	if reached := h.reaches("a", "b", 2*time.Second); !reached || time.Since(began) < 2*delay {
		t.Errorf("it reaches the host: %t, after %s", reached, time.Since(began))
	}
	h.NoDelay("b")
	h.Delay("b", 0, 1)
	if h.reaches("a", "b", time.Second) {
		t.Error("a lost packet arrives")
	}
	h.NoDelay("b")
	clustertest.WaitFor(t, "the host without a delay", func() bool { return h.reaches("a", "b", time.Second) })
}

// TestEnd: with the test every process of its hosts ends.
func TestEnd(t *testing.T) {
	t.Parallel()
	var dir string
	var pid int
	t.Run("hosts", func(t *testing.T) {
		h := New(t, nil, "a")
		dir, pid = h.dir, h.nodes["a"].pid
		if err := h.Command(context.Background(), "a", nil, "bash", "-c",
			"setsid sleep 1000 & sleep 1000").Start(); err != nil {
			t.Fatal(err)
		}
		clustertest.WaitFor(t, "the process", func() bool {
			out, _ := h.Run("a", "pgrep", "-c", "sleep")
			return strings.TrimSpace(out) == "2"
		})
	})
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil {
		t.Error("the host's first process lives")
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("its disk is left: %s", dir)
	}
}

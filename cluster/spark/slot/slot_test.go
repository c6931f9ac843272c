package slot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestMain is also the agent that the tests start: it writes its configuration and environment to files,
// and runs until the configuration file is removed.
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "agent" {
		os.Exit(m.Run())
	}
	config, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Exit(1)
	}
	received, err := clusterpb.ReadAgentConfig(bytes.NewReader(config))
	if err != nil {
		os.Exit(1)
	}
	seen := received.GetDriver().GetFind()                                         // set by newRequest
	_ = os.WriteFile(seen+".env", []byte(strings.Join(os.Environ(), "\n")), 0o600) // the test reports a missing file
	_ = os.WriteFile(seen+".aside", config, 0o600)
	_ = os.Rename(seen+".aside", seen)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(seen); err != nil {
			return
		}
	}
}

// shortTempDir sets TMPDIR to a folder with a path that is short enough for sockets.
func shortTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "slot")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("TMPDIR", dir)
	return dir
}

func newRequest(t *testing.T) Request {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(program)
	config, err := (&clusterpb.AgentConfig{
		Identity: &clusterpb.AgentIdentity{KeyPem: "secret"},
		Driver:   &clusterpb.DriverAddress{Find: filepath.Join(t.TempDir(), "seen")},
	}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return Request{
		Identity: "c", Slots: 1, Coordinator: ln.Addr().String(), Digest: hex.EncodeToString(sum[:]), Python: "sh",
		Hold:     true, // no ancestor of the test is a JVM
		Executor: "worker-0", Attempt: 3, Config: config,
	}
}

func mainResponse(t *testing.T, o Request) Response {
	t.Helper()
	in, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Main(t.Context(), bytes.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var response Response
	if err := json.Unmarshal(out.Bytes(), &response); err != nil {
		t.Fatalf("%q: %v", out.String(), err)
	}
	if response.Executor != o.Executor || response.Attempt != o.Attempt || response.Host == "" {
		t.Errorf("the response is %+v", response)
	}
	return response
}

// TestStart: the agent gets its configuration and the slot, and no variables that Spark sets for its own
// workers.
func TestStart(t *testing.T) {
	base := filepath.Join(shortTempDir(t), fmt.Sprintf("tfcluster-%d", os.Getuid()))
	t.Setenv("OMP_NUM_THREADS", "1")
	t.Setenv("CUDA_VISIBLE_DEVICES", "7")
	o := newRequest(t)
	o.GPUs, o.Assigned = "0,2", true
	response := mainResponse(t, o)
	if response.Error != "" || response.PID == 0 {
		t.Fatalf("the response is %+v", response)
	}
	sent, err := clusterpb.ReadAgentConfig(bytes.NewReader(o.Config))
	if err != nil {
		t.Fatal(err)
	}
	seen := sent.GetDriver().GetFind()
	var config *clusterpb.AgentConfig
	await(t, "the agent's configuration", func() bool {
		text, err := os.ReadFile(seen)
		if err == nil {
			config, err = clusterpb.ReadAgentConfig(bytes.NewReader(text))
		}
		return err == nil
	})
	folders := config.GetFolders()
	if config.GetIdentity().GetKeyPem() != "secret" || !folders.GetOwnRuntimeDir() || !config.GetGpus().GetAssigned() ||
		!filepath.IsAbs(config.GetPython()) || filepath.Dir(folders.GetRuntimeDir()) != base {
		t.Errorf("the agent's configuration is %v", config)
	}
	if left, _ := filepath.Glob(filepath.Join(folders.GetRuntimeDir(), "config-*")); len(left) > 0 {
		t.Errorf("the agent's key is left in %v", left)
	}
	env, err := os.ReadFile(seen + ".env")
	if err != nil || strings.Contains(string(env), "OMP_NUM_THREADS") || !strings.Contains(string(env),
		"CUDA_VISIBLE_DEVICES=0,2\n") && !strings.HasSuffix(string(env), "CUDA_VISIBLE_DEVICES=0,2") {
		t.Errorf("the agent's environment is %s, %v", env, err)
	}
	if response := mainResponse(t, o); !response.Full {
		t.Errorf("with the only slot in use the response is %+v", response)
	}
	o.Identity = "d"
	if err := os.Remove(seen); err != nil { // the agent ends
		t.Fatal(err)
	}
	o.Identity = "c"
	executor, found := findExecutor(os.Getppid())
	if !found {
		executor = os.Getppid()
	}
	await(t, "the slot", func() bool {
		f, err := acquireSlot(base, "c", executor, 1)
		if err != nil {
			return false
		}
		return f.Close() == nil
	})
}

func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("waited for %s", what)
}

// TestErrors: the response contains the error, in one line, and no folder is left.
func TestErrors(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for _, c := range []struct {
		name  string
		spoil func(*Request)
		want  string
	}{
		{"another program", func(o *Request) { o.Digest = "00" }, "is not the driver's tfcluster (its SHA-256 is"},
		{"an unreachable driver", func(o *Request) {
			o.Coordinator = closed.Addr().String()
		}, "cannot reach the driver at " + closed.Addr().String() + ": connect: connection refused; --advertise"},
	} {
		t.Run(c.name, func(t *testing.T) {
			base := filepath.Join(shortTempDir(t), fmt.Sprintf("tfcluster-%d", os.Getuid()))
			o := newRequest(t)
			c.spoil(&o)
			response := mainResponse(t, o)
			if !strings.Contains(response.Error, c.want) || strings.Contains(response.Error, "\n") || response.PID != 0 {
				t.Errorf("the response is %+v, want %q", response, c.want)
			}
			if left, _ := filepath.Glob(filepath.Join(base, "agent-*")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestAcquireSlot(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	first, err := acquireSlot(base, "c", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if f, err := acquireSlot(base, "c", 1, 1); !errors.Is(err, errFull) {
		t.Errorf("the slot in use returns %v, %v", f, err)
	}
	for _, c := range []struct {
		cluster         string
		executor, slots int
	}{{"c", 1, 0}, {"c", 1, 2}, {"d", 1, 1}, {"c", 2, 1}} {
		f, err := acquireSlot(base, c.cluster, c.executor, c.slots)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		f.Close()
	}
}

// TestSweep: folders and slots of killed agents and executors are removed; those that are in use or being
// created are kept.
func TestSweep(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	make := func(name string, lock bool) string {
		path := filepath.Join(base, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if lock {
			if err := os.WriteFile(filepath.Join(path, "alive"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		return path
	}
	dead, alive, young, never := make("agent-dead", true), make("agent-alive", true), make("agent-young", false),
		make("agent-never", false)
	long := time.Now().Add(-2 * unlockedAge)
	if err := os.Chtimes(never, long, long); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(alive, "alive"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ours, gone := filepath.Join(base, fmt.Sprintf("slot-a-name-%d-0", os.Getpid())),
		filepath.Join(base, "slot-a-name-2147483647-0")
	for _, slot := range []string{ours, gone} {
		if err := os.WriteFile(slot, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := agentFolder(base)
	if err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{
		dead: false, alive: true, young: true, never: false, ours: true, gone: false, made: true,
	} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, stays %t", path, err, stays)
		}
	}
}

// TestBaseFolder: a symbolic link is rejected, and a long path is avoided.
func TestBaseFolder(t *testing.T) {
	dir := shortTempDir(t)
	name := fmt.Sprintf("tfcluster-%d", os.Getuid())
	if err := os.Symlink(dir, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	if base, err := baseFolder(); err == nil || !strings.Contains(err.Error(), "not a folder that belongs to this user") {
		t.Errorf("a link gives %q, %v", base, err)
	}
	t.Setenv("TMPDIR", filepath.Join(dir, strings.Repeat("long", 15)))
	if base, err := baseFolder(); err != nil || base != "/tmp/"+name {
		t.Errorf("a long path gives %q, %v", base, err)
	}
}

func FuzzMain(f *testing.F) {
	f.Add([]byte(`{"cluster":"c","slots":1,"digest":"00","config":{"a":1}}`))
	f.Add([]byte(`{"config":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, in []byte) {
		t.Setenv("TMPDIR", t.TempDir())
		var out bytes.Buffer
		if err := Main(t.Context(), bytes.NewReader(in), &out); err == nil && !json.Valid(out.Bytes()) {
			t.Errorf("%q gives %q", in, out.String())
		}
	})
}

// TestNoExecutor: an agent that could not end with the task or the executor is not started.
func TestNoExecutor(t *testing.T) {
	base := filepath.Join(shortTempDir(t), fmt.Sprintf("tfcluster-%d", os.Getuid()))
	o := newRequest(t)
	o.Hold = false
	if response := mainResponse(t, o); response.PID != 0 || response.Full ||
		!strings.Contains(response.Error, "none of the 4 processes above the task is a JVM") {
		t.Errorf("the response is %+v", response)
	}
	if left, _ := filepath.Glob(filepath.Join(base, "slot-*")); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

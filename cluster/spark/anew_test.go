package spark

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// fakeHost speaks for a Spark that has every agent started at once.
const fakeHost = `
import json, socket, sys
asked = json.load(sys.stdin)
conn = socket.socket(socket.AF_UNIX)
conn.connect(asked["socket"])
def say(message): conn.sendall(json.dumps(message).encode() + b"\n")
say({"event": "hello", "key": asked["key"], "application": "app"})
for line in conn.makefile("rb"):
    call = json.loads(line)
    agents = (call.get("args") or {}).get("agents", [])
    started = [{"executor": a["executor"], "attempt": a["attempt"], "host": "h"} for a in agents]
    say({"id": call["id"], "value": started})
    if call["op"] == "stop":
        break
`

// TestSessionAnew: a session that is killed costs its executors, the next replacement
// makes another, and Release leaves no process.
func TestSessionAnew(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("missing: python3")
	}
	runtime, err := os.MkdirTemp("/tmp", "t") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	modules := t.TempDir()
	for name, text := range map[string]string{"__init__.py": "", "spark_host.py": fakeHost} {
		if err := os.MkdirAll(filepath.Join(modules, "tfcluster"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(modules, "tfcluster", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &Backend{PythonPath: func(string) (string, error) { return modules, nil }}
	req := request(map[string]string{"master": "local[2]"}, nil)
	req.Reserve.Python, req.Reserve.TimeoutMillis, req.StateDir = python, 60_000, t.TempDir()
	req.AgentConfig = func(cluster.ExecutorID, int) (*clusterpb.AgentConfig, error) {
		return &clusterpb.AgentConfig{Driver: &clusterpb.DriverAddress{Coordinator: "h:1"}}, nil
	}
	got, err := b.Allocate(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	next := func() cluster.Event {
		t.Helper()
		select {
		case e := <-got.Events():
			return e
		case <-time.After(time.Minute):
			t.Fatal("nothing happens")
			return nil
		}
	}
	process := func() state.Process {
		var s saved
		if err := json.Unmarshal(got.Saved(), &s); err != nil {
			t.Fatal(err)
		}
		return s.Session
	}
	if e, ok := next().(cluster.Granted); !ok || e.Attempt != 0 {
		t.Fatalf("the first event is %+v", e)
	}
	first := process()
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if e, ok := next().(cluster.Lost); !ok || e.Attempt != 0 ||
		e.Cause != "the Spark session is over: its process was killed by signal 9" {
		t.Fatalf("after the session was killed: %+v", e)
	}
	if err := got.Replace(t.Context(), "0"); err != nil {
		t.Fatal(err)
	}
	if e, ok := next().(cluster.Granted); !ok || e.Attempt != 1 {
		t.Fatalf("after the replacement: %+v", e)
	}
	second := process()
	if second == first || !second.Alive() {
		t.Errorf("the sessions' processes are %+v and %+v", first, second)
	}
	if err := got.Release(t.Context(), cluster.Succeeded, ""); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(time.Minute); second.Alive() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
	if second.Alive() {
		t.Error("the session's process is left")
	}
	if err := got.Replace(t.Context(), "0"); err == nil {
		t.Error("a released allocation replaces")
	}
}

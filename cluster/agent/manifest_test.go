package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestManifest: the agent's part comes from every task, the program's from Python. Secrets of the environment are in
// neither, and a program cannot write the agent's part.
func TestManifest(t *testing.T) {
	t.Parallel()
	c := bare(t)
	c.prepare(1, 0)
	l := c.cell(1, "import tfcluster\ntfcluster.context()._channel.send('manifest', manifest={'host': 'forged', "+
		"'packages': {'own': '1'}})\n")
	l.Env = map[string]string{"GREETING": "hello", "MY_TOKEN": "abc", "JOB_NAME": "worker"}
	c.launch(l)
	if x := c.exited(1); x.GetCode() != 0 {
		t.Fatalf("exited %v: %s", x, c.text(1))
	}
	part := func(what string, has func(*clusterpb.TaskManifest) bool) *clusterpb.TaskManifest {
		return c.event(what,
			func(e *clusterpb.TaskEvent) bool { return e.GetManifest() != nil && has(e.GetManifest()) }).GetManifest()
	}
	agents := part("the agent's part", func(m *clusterpb.TaskManifest) bool { return m.GetEnvironment() != nil })
	env := agents.GetEnvironment()
	if env["GREETING"] != "hello" || env["MY_TOKEN"] != "" || env["JOB_NAME"] != "" || agents.GetHost() == "" ||
		agents.GetCpus() < 1 || agents.GetExecutorId() == "" {
		t.Errorf("the agent's part is %v", agents)
	}
	python := part("Python's part", func(m *clusterpb.TaskManifest) bool { return m.GetVersions()["Python"] != "" })
	if len(python.GetCode()["cell"]) != 64 || python.GetPython() == "" {
		t.Errorf("Python's part is %v", python)
	}
	own := part("the program's", func(m *clusterpb.TaskManifest) bool { return m.GetPackages()["own"] != "" })
	if own.GetHost() != "" {
		t.Errorf("the program's part is %v", own)
	}
}

// TestManifestsAreRepeatedAsOne: after a reconnection an agent repeats one manifest for each attempt of a task.
func TestManifestsAreRepeatedAsOne(t *testing.T) {
	t.Parallel()
	event := func(attempt int32, m *clusterpb.TaskManifest) *clusterpb.TaskEvent {
		return &clusterpb.TaskEvent{
			Run: 1, Attempt: attempt, Task: "worker:0", Event: &clusterpb.TaskEvent_Manifest{Manifest: m},
		}
	}
	first := event(0, &clusterpb.TaskManifest{Host: "a", Packages: map[string]string{"x": "1"}})
	events := remember(nil, first)
	for i := range 3000 {
		events = remember(events,
			event(0, &clusterpb.TaskManifest{Data: map[string]*clusterpb.DataUse{fmt.Sprintf("/data/%04d", i): {Files: 1}}}))
	}
	events = remember(events, event(1, &clusterpb.TaskManifest{Host: "a"}))
	events = remember(events, &clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Note{Note: &clusterpb.Note{}}})
	if len(events) != 2 {
		t.Fatalf("%d events are repeated", len(events))
	}
	m := events[0].GetManifest()
	if m.GetHost() != "a" || m.GetPackages()["x"] != "1" || len(m.GetData()) != 1000 ||
		m.GetData()["/data/0000"].GetFiles() != 1 {
		t.Errorf("it has %d entries of data: %v", len(m.GetData()), m.GetPackages())
	}
	if len(first.GetManifest().GetData()) > 0 {
		t.Error("an event that was sent has changed")
	}
}

func TestTaskVariables(t *testing.T) {
	t.Parallel()
	got := taskVariables(interpreter.SpawnRequest{
		Base: map[string]string{"A": "1", "B": "1", "GONE": "1", "PYTHONPATH": "/ours:/theirs"},
		Env:  map[string]string{"B": "2", "X_KEY": "3"}, Unset: []string{"GONE"},
	}, "/ours")
	if want := map[string]string{"A": "1", "B": "2", "PYTHONPATH": "/theirs"}; !maps.Equal(got, want) {
		t.Errorf("the variables are %v", got)
	}
	if got := taskVariables(interpreter.SpawnRequest{Env: map[string]string{"PYTHONPATH": "/ours"}},
		"/ours"); len(got) > 0 {
		t.Errorf("the variables are %v", got)
	}
}

func TestNVIDIADriver(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "version")
	text := "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder@host)  Fri Jan " +
		"17\nGCC version:  gcc version 12.2.0\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := nvidiaDriver(file); got != "570.86.15" {
		t.Errorf("the driver is %q", got)
	}
	if got := nvidiaDriver(file + ".missing"); got != "" {
		t.Errorf("without a driver it is %q", got)
	}
}

// FuzzManifest: whatever a program writes, a part is bounded or refused.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"packages":{"a":"1"},"data":{"u":null},"gpus":[{"name":"x"}]}`))
	f.Add([]byte(`{"sources":{"a.py":"token='x'"},"absent":["b","b"]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if m := parseManifest(text); m != nil && (m.GetHost() != "" || len(m.GetGpus()) > 0 || len(m.GetPackages()) > 1000) {
			t.Errorf("it is %v", m)
		}
	})
}

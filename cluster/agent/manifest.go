package agent

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tfcluster/tfcluster/cluster/agent/interpreter"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest"
)

// sendManifest reports what the agent knows of what a task runs with.
func (a *Agent) sendManifest(t *task, request interpreter.SpawnRequest) {
	ours, _ := a.python.PackagePath()
	m := &clusterpb.TaskManifest{
		Host: a.self.host, ExecutorId: a.cfg.GetIdentity().GetExecutorId(), Cpus: int32(runtime.NumCPU()),
		Environment: taskVariables(request, ours),
	}
	if held := a.gpus.held; held != nil && len(held.GPUs) > 0 {
		for _, g := range held.GPUs {
			m.Gpus = append(m.Gpus, &clusterpb.ManifestGPU{Name: g.GetName(), Uuid: g.GetUuid()})
		}
		if v := nvidiaDriver("/proc/driver/nvidia/version"); v != "" {
			m.Versions = map[string]string{"NVIDIA driver": v}
		}
	}
	t.emit(t.event(&clusterpb.TaskEvent{Event: &clusterpb.TaskEvent_Manifest{Manifest: m}}))
}

// taskVariables returns a task's environment without secrets, without what describes the cluster, and without the
// folder of the package tfcluster in PYTHONPATH.
func taskVariables(request interpreter.SpawnRequest, ours string) map[string]string {
	env := map[string]string{}
	maps.Copy(env, request.Base)
	for _, name := range request.Unset {
		delete(env, name)
	}
	maps.Copy(env, request.Env)
	if path, ok := env[pythonPath]; ok {
		rest := slices.DeleteFunc(filepath.SplitList(path), func(folder string) bool { return folder == ours })
		if env[pythonPath] = strings.Join(rest, string(os.PathListSeparator)); len(rest) == 0 {
			delete(env, pythonPath)
		}
	}
	return manifest.Variables(env)
}

const pythonPath = "PYTHONPATH"

// nvidiaDriver returns the version of the kernel module from the file that it provides; "" if there is none.
func nvidiaDriver(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(regexp.MustCompile(`\d+\.\d+(\.\d+)?`).Find(text))
}

// parseManifest returns the part of a manifest that a task sent; nil if it is malformed. The program may have written
// it itself, so its values are not trusted, and what only the agent knows is dropped.
func parseManifest(text json.RawMessage) *clusterpb.TaskManifest {
	m := &clusterpb.TaskManifest{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, m); err != nil {
		return nil
	}
	m.Host, m.ExecutorId, m.Attempt, m.Cpus, m.Gpus, m.Environment = "", "", 0, 0, nil, nil
	m.Absent = slices.Compact(slices.Sorted(slices.Values(m.GetAbsent())))
	return manifest.Clean(m)
}

package magics

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
)

// TestJSON: --json prints JSON and nothing else; values carry their type.
func TestJSON(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	d.prep = func(f *fakeCluster) { f.follow = trainingUpdates() }
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve")
	must(t, s, "%tfcluster start main_fun")
	for _, line := range []string{
		"status --json", "history --json", "gpus --json", "status --all --json", "status --run 1 --json",
	} {
		out := newRecord()
		if _, err := runCode(t.Context(), s, "%tfcluster "+line, out, nil); err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(out.settle(), "out| ", "")
		if !json.Valid([]byte(text)) {
			t.Errorf("%s prints\n%s", line, text)
		}
	}
	v, err := runCode(t.Context(), s, "%tfcluster wait", newRecord(), nil)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := result.JSON(v)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	if got["type"] != "Run" || got["id"] != 1.0 || got["state"] != "finished" ||
		got["result"].(map[string]any)["accuracy"] != 0.9121 || len(got["history"].(map[string]any)["loss"].([]any)) != 3 ||
		len(got["steps"].(map[string]any)["loss"].([]any)) != 3 {
		t.Errorf("the run is %s", raw)
	}
	if codes, ok := got["exit_codes"].(map[string]any); !ok || codes["worker:1"] != 0.0 {
		t.Errorf("exit codes are %v", got["exit_codes"])
	}
}

// TestStatusJSONKeepsSecrets: the values given by --env and --conf are not shown.
func TestStatusJSONKeepsSecrets(t *testing.T) {
	t.Parallel()
	d := newFakeDrivers(t)
	s := newTestSession(t, d, "")
	must(t, s, "%tfcluster reserve --name mine --env TOKEN=hunter2")
	f := d.get("mine")
	f.mu.Lock()
	f.request.Engine = map[string]string{"conf.spark.ssl.keyPassword": "hunter2", "queue": "night"}
	f.request.Begin = &clusterpb.StartRequest{Options: &clusterpb.RunOptions{Env: map[string]string{"KEY": "hunter2"}}}
	f.mu.Unlock()
	if text := must(t, s, "%tfcluster status --json").settle(); strings.Contains(text, "hunter2") ||
		!strings.Contains(text, "TOKEN") || !strings.Contains(text, "keyPassword") || !strings.Contains(text, "night") {
		t.Errorf("it shows\n%s", text)
	}
}

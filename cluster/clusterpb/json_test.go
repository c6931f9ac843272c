package clusterpb

import (
	"encoding/json"
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
)

// TestToJSON: keys are those of the protocol, integers are numbers in fields, lists, maps and
// messages within them, and protojson reads the same message again.
func TestToJSON(t *testing.T) {
	t.Parallel()
	st := &RunStatus{
		Id: 3, StartedUnix: 1795362531, Words: []string{"12"}, Results: map[string]*TaskResult{"worker:0": {Json: "7"}},
		Progress: &Report{Step: 1 << 60, Metrics: map[string]float64{"loss": math.NaN()}},
		Series:   []*Series{{Name: "loss", Steps: []int64{1, 2}, Values: []float64{0.5, 0.25}}},
		Tasks: []*TaskStatus{{Task: "worker:0", Usage: &Usage{
			RssBytes: 240513024, GpuPercent: new(float32(0)), GpuUsedBytes: new(uint64(1 << 60)),
		}}},
	}
	text, err := ToJSON(st, false)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":3,"progress":{"metrics":{"loss":"NaN"},"step":1152921504606846976},` +
		`"results":{"worker:0":{"json":"7"}},` +
		`"series":[{"name":"loss","steps":[1,2],"values":[0.5,0.25]}],"started_unix":1795362531,` +
		`"tasks":[{"gpu_used_bytes":1152921504606846976,"rss_bytes":240513024,"task":"worker:0"}],"words":["12"]}`
	if string(text) != want {
		t.Errorf("\n got %s\nwant %s", text, want)
	}
	again := &RunStatus{}
	st.Tasks[0].Usage.GpuPercent = nil // is 0
	text = append([]byte(`{"of_a_later_version":{"tasks":1},`), text[1:]...)
	if err := FromJSON(text, again); err != nil || !math.IsNaN(again.GetProgress().GetMetrics()["loss"]) {
		t.Error(again, err)
	}
	again.Progress.Metrics, st.Progress.Metrics = nil, nil // NaN is not equal to itself
	if !proto.Equal(again, st) {
		t.Errorf("\n got %s\nwant %s", again, st)
	}
	for _, damaged := range []string{"", "7", "[]", `{"tasks":7}`, `{"tasks":[7]}`, `{"tasks":[{"rss_bytes":{}}]}`} {
		if err := FromJSON([]byte(damaged), &RunStatus{}); err == nil {
			t.Errorf("%s is read", damaged)
		}
	}
	for name := range UsageOf(map[string]float64{"cpu_seconds": 1, "gpu_percent": 1, "gpu_used_bytes": 1}).Values() {
		if (*TaskStatus)(nil).ProtoReflect().Descriptor().Fields().ByTextName(name) != nil {
			t.Errorf("%s is a field of Usage and of TaskStatus", name)
		}
	}
	if text, err = ToJSON(&TaskStatus{}, true); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil || all["rss_bytes"] != 0.0 || all["cpu_seconds"] != 0.0 ||
		all["gpu_used_bytes"] != 0.0 || all["usage"] != nil || all["exit_code"] != 0.0 ||
		all["echo"] != false {
		t.Errorf("%s: %v", text, err)
	}
}

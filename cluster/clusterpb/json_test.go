package clusterpb

import (
	"encoding/json"
	"math"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
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
		Tasks:    []*TaskStatus{{Task: "worker:0", RssBytes: 240513024}},
	}
	text, err := ToJSON(st, false)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"id":3,"progress":{"metrics":{"loss":"NaN"},"step":1152921504606846976},` +
		`"results":{"worker:0":{"json":"7"}},` +
		`"series":[{"name":"loss","steps":[1,2],"values":[0.5,0.25]}],"started_unix":1795362531,` +
		`"tasks":[{"rss_bytes":240513024,"task":"worker:0"}],"words":["12"]}`
	if string(text) != want {
		t.Errorf("\n got %s\nwant %s", text, want)
	}
	again := &RunStatus{}
	if err := protojson.Unmarshal(text, again); err != nil || !proto.Equal(proto.CloneOf(again), again) ||
		again.GetProgress().GetStep() != 1<<60 {
		t.Error(again, err)
	}
	if text, err = ToJSON(&TaskStatus{}, true); err != nil {
		t.Fatal(err)
	}
	var all map[string]any
	if err := json.Unmarshal(text, &all); err != nil || all["rss_bytes"] != 0.0 || all["exit_code"] != 0.0 ||
		all["echo"] != false {
		t.Errorf("%s: %v", text, err)
	}
}

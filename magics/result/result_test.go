package result

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestRunValueResults: the value has what every task returned, in the forms that the shim
// reads.
func TestRunValueResults(t *testing.T) {
	t.Parallel()
	text, err := JSON(OfRun("c", &clusterpb.RunStatus{
		Result: &clusterpb.TaskResult{Json: "0", Repr: "0"},
		Results: map[string]*clusterpb.TaskResult{
			"worker:0": {Json: "0", Repr: "0"}, "worker:1": {Json: "null"}, "worker:2": {Pickled: []byte("p"), Repr: "<X>"},
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	var said struct {
		Result  int
		Results map[string]map[string]any
	}
	if err := json.Unmarshal(text, &said); err != nil {
		t.Fatal(err)
	}
	if said.Results["worker:0"]["result"] != 0.0 || said.Results["worker:1"]["result"] != nil ||
		said.Results["worker:2"]["result_pickle"] != "cA==" || said.Results["worker:2"]["result_repr"] != "<X>" {
		t.Errorf("the shim reads %s", text)
	}
}

// TestMeans: of the tasks that have a metric, weighted by their records.
func TestMeans(t *testing.T) {
	t.Parallel()
	evaluated := func(records int64, metrics map[string]float64) *clusterpb.TaskResult {
		return &clusterpb.TaskResult{Json: "null", Evaluation: &clusterpb.Evaluation{Metrics: metrics, Records: records}}
	}
	got := OfRun("c", &clusterpb.RunStatus{Results: map[string]*clusterpb.TaskResult{
		"worker:0": evaluated(300, map[string]float64{"loss": 1, "mae": 2}),
		"worker:1": evaluated(100, map[string]float64{"loss": 5}),
		"worker:2": evaluated(0, map[string]float64{"loss": 7, "none": 1}),
		"ps:0":     {Json: "1"},
	}}).Means()
	if want := map[string]float64{"loss": 2, "mae": 2}; !maps.Equal(got, want) {
		t.Errorf("the means are %v, not %v", got, want)
	}
}

// TestWholeNumbers: Python reads a metric as a float, whatever its value is; a count stays an int.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	text, err := JSON(OfRun("c", &clusterpb.RunStatus{
		Id: 3, Progress: &clusterpb.Report{Metrics: map[string]float64{"loss": 1, "far": 1e30, "near": 0.25, "below": -2}},
		Series: []*clusterpb.Series{{Name: "loss", Steps: []int64{1, 2}, Values: []float64{4, 2.5}}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"id":3,`, `"loss":1.0`, `"far":1e+30`, `"near":0.25`, `"below":-2.0`, `"loss":[4.0,2.5]`, `"steps":{"loss":[1,2]}`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the JSON has no %s: %s", want, text)
		}
	}
}

// TestPlainError: however the connection to a killed driver broke.
func TestPlainError(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"error reading from server: EOF", "error reading from server: connection reset by peer",
		"connection error: desc = \"transport: Error while dialing\"", "transport is closing",
	} {
		if got := NewReport(Answered(status.Error(codes.Unavailable, text))); !strings.Contains(got.Value,
			"the connection to the cluster's driver broke") {
			t.Errorf("%s is told as %s", text, got.Value)
		}
	}
	if got := NewReport(Answered(status.Error(codes.Unavailable, "the cluster is being released"))); got.Value !=
		"the cluster is being released" {
		t.Errorf("the driver's own word is told as %s", got.Value)
	}
}

package verbs

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestFeedLine: how far a feed is, while it is on and when it is over.
func TestFeedLine(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		p    *clusterpb.FeedProgress
		nan  map[string]int64
		over bool
	}{
		"fed 0 records": {p: &clusterpb.FeedProgress{}},
		"fed 1 record · the source is slower than " +
			"the program": {p: &clusterpb.FeedProgress{Fed: 1, Brake: "the source"}},
		"fed 38,400 of 60,000 records · epoch 2 of 3 · 41,000 records/s · the program is slower than the source": {
			p: &clusterpb.FeedProgress{
				Fed: 38_400, Total: 20_000, Epoch: 2, Epochs: 3, PerSecond: 41_000.4, Brake: "the program",
			},
		},
		"fed 10,000 of 10,002 records · epoch 2 of 2 · 2 records left out": {p: &clusterpb.FeedProgress{
			Fed: 10_000, Total: 5001, Epoch: 2, Epochs: 2, LeftOut: 2, PerSecond: 7, Brake: "the program",
		}, over: true},
		"fed 2,000 of 1,000,000 records · 998,000 records not read": {
			p: &clusterpb.FeedProgress{Fed: 2000, Total: 1_000_000, Epochs: 1, Unread: 31_000, Brake: "the source"}, over: true,
		},
		"fed 2,000 records · the rest was not read · 17 NaN in " +
			"x, 2 in y": {p: &clusterpb.FeedProgress{Fed: 2000, Unread: 31}, nan: map[string]int64{"y": 2, "x": 17}, over: true},
		"fed 5 records · 1 NaN": {p: &clusterpb.FeedProgress{Fed: 5}, nan: map[string]int64{"": 1}},
	} {
		if got := feedLine(c.p, c.nan, c.over); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestHTML: nothing that a task writes or a path holds becomes markup, and nothing
// shown is script.
func TestHTML(t *testing.T) {
	t.Parallel()
	evil := `<script>alert(1)</script>"'&`
	run := &clusterpb.RunStatus{
		Id: 1, State: "failed", Program: evil, Dir: evil, LogDir: evil, ResumedFrom: evil,
		Failure:  &clusterpb.Failure{Summary: evil, Lines: []string{evil}, Remedy: evil, Echoes: []string{evil}},
		Tasks:    []*clusterpb.TaskStatus{{Task: evil, Host: evil, State: evil, Reason: evil, ExitCode: 1}},
		Series:   []*clusterpb.Series{{Name: evil, Steps: []int64{1, 2}, Values: []float64{1, 2}}},
		Progress: &clusterpb.Report{Step: 1, TotalSteps: 2, Metrics: map[string]float64{evil: 1}},
		Result:   &clusterpb.TaskResult{Repr: evil}, Words: []string{evil},
	}
	st := &clusterpb.ClusterStatus{
		Name: evil, Backend: evil, State: evil, Dir: evil, Host: evil, Network: evil, Run: run,
		Notes: []*clusterpb.Note{{Text: evil}}, Executors: []*clusterpb.ExecutorStatus{
			{Id: evil, Task: evil, Host: evil, State: evil, Cause: evil, Python: &clusterpb.Python{Error: evil}},
		},
	}
	say := func(s string) string { return s }
	network := &clusterpb.FabricReply{Mode: evil, Summary: evil, Tensorflow: evil, Executors: []*clusterpb.ExecutorFabric{{
		Task: evil, Host: evil, Nccl: evil,
		Fabric: &clusterpb.Fabric{
			Address: evil,
			Ports:   []*clusterpb.FabricPort{{Device: evil, Link: evil, Near: evil, Problem: evil, Remedy: evil}},
		}, Settings: []*clusterpb.FabricSetting{{Name: evil, Value: evil, Reason: evil, Source: evil}},
		Chosen: &clusterpb.NCCLChoice{Version: evil, Network: evil, Devices: []string{evil}, Paths: []string{evil}},
	}}}
	for name, b := range map[string]render.Bundle{
		"status": render.ClusterView(st, say), "run": render.RunView(run), "summary": render.Summary(run),
		"entered": entered(run, say), "reserved": render.Reserved(st, 1), "network": render.FabricView(evil, network),
		"held":        held(st),
		"reservation": render.Reservation(evil, nil, &clusterpb.ReserveUpdate{Executors: st.GetExecutors(), Waiting: evil}),
		"history": render.HistoryView(
			&clusterpb.HistoryReply{Runs: []*clusterpb.RunStatus{run}, Leases: []*clusterpb.Lease{{Id: evil, State: evil}}}),
		"diff": render.DiffView(&manifest.Diff{
			Runs:    []int32{1, 2},
			Changes: []manifest.Change{{Kind: manifest.Kind(evil), Name: evil, Before: evil, After: evil}},
			Sources: map[string]string{evil: evil},
		}),
		"compare": render.ComparisonView(&manifest.Comparison{
			Rows:    []manifest.Row{{Program: evil, State: evil, Differing: map[string]string{evil: evil}}},
			Columns: []string{evil},
			Metrics: []string{evil},
		}), "clusters": clustersView([]session.ClusterInfo{{Name: evil, Backend: evil, Owner: evil, Note: evil}}, ""),
		"doctor": doctorView([]finding{{what: evil, found: evil, remedy: evil}}, evil), "gpus": gpusView(&clusterpb.GPUsReply{
			Gpus: []*clusterpb.GPU{
				{Name: evil, Host: evil, Holder: evil, Processes: []*clusterpb.GPUProcess{{Command: evil}}},
			},
			Errors: []string{evil},
		}), "tensorboard": tensorBoardFallback(evil, &clusterpb.TensorBoardReply{Logdir: evil, Error: evil}, run),
		"reset": resetView(evil, &clusterpb.ResetUpdate{Text: evil, Executors: st.GetExecutors()}, 0),
	} {
		html := b.HTML()
		if strings.Contains(html, "<script") || strings.Contains(html, `"'&`) || !strings.Contains(html, "&lt;script&gt;") {
			t.Errorf("%s: not escaped: %s", name, html)
		}
		if strings.Contains(html, "ZgotmplZ") { // html/template's word for what it refuses
			t.Errorf("%s: a part is missing: %s", name, html)
		}
		if !strings.Contains(b.Text, "script") {
			t.Errorf("%s: the text says less than the HTML: %s", name, b.Text)
		}
	}
}

package runfiles

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// TestFindTorn: what a restart leaves out.
func TestFindTorn(t *testing.T) {
	t.Parallel()
	const state = `model_checkpoint_path: "ckpt-18"` + "\n"
	for name, tt := range map[string]struct{ files, torn string }{
		"whole sets":                 {"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-0.pt step-17/rank-1.pt", ""},
		"a rank is behind":           {"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-1.pt", "step-17/rank-1.pt"},
		"two sets are torn":          {"step-8/rank-0.pt step-8/rank-1.pt step-9/rank-0.pt step-10/rank-0.pt", "step-10/rank-0.pt step-9/rank-0.pt"},
		"numbers are no text":        {"step-9/rank-0.pt step-9/rank-1.pt step-10/rank-0.pt step-10/rank-1.pt step-11/rank-0.pt", "step-11/rank-0.pt"},
		"on its way":                 {"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-0.pt step-17/.part-rank-1.pt", "step-17/rank-0.pt"},
		"fewer ranks than before":    {"step-1/rank-0 step-1/rank-1 step-1/rank-2 step-1/rank-3 step-2/rank-0 step-2/rank-1", ""},
		"chief and worker":           {"step-1/chief-0.pt step-1/worker-0.pt step-2/worker-0.pt", "step-2/worker-0.pt"},
		"samples":                    {"step-1/model.pt step-1/sample-0.png step-1/sample-1.png step-2/model.pt step-2/sample-0.png", ""},
		"folds":                      {"epoch-1/fold-0.h5 epoch-1/fold-1.h5 epoch-2/fold-0.h5", ""},
		"hosts":                      {"step-1/host-0.npz step-1/host-1.npz step-2/host-0.npz", "step-2/host-0.npz"},
		"one rank":                   {"step-16/model.pt step-17/model.pt", ""},
		"the step behind the rank":   {"rank-0/step-3.pt rank-1/step-3.pt rank-0/step-4.pt", "rank-0/step-4.pt"},
		"in the name":                {"w0-step3.bin w1-step3.bin w1-step4.bin", "w1-step4.bin"},
		"shards":                     {"ckpt-17.data-00000-of-00002 ckpt-17.data-00001-of-00002 ckpt-17.index ckpt-18.data-00000-of-00002 ckpt-18.index", "ckpt-18.data-00000-of-00002 ckpt-18.index"},
		"shards that are listed":     {"checkpoint ckpt-17.data-00000-of-00002 ckpt-17.data-00001-of-00002 ckpt-17.index ckpt-18.data-00000-of-00002 ckpt-18.index", ""},
		"an optional file is no set": {"step-1/rank-0.pt step-1/rank-1.pt step-1/best.pt step-2/rank-0.pt step-2/rank-1.pt", ""},
		"without a step":             {"state-worker-0.json state-worker-1.json weights.keras", ""},
		"the first set":              {"step-1/rank-0.pt", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := fstest.MapFS{}
			for f := range strings.FieldsSeq(tt.files) {
				folder[f] = &fstest.MapFile{Data: []byte(state)}
			}
			torn, err := FindTorn(folder, 2)
			slices.Sort(torn.Names)
			if got := strings.Join(torn.Names, " "); got != tt.torn || err != nil || len(torn.Why) == 0 != (tt.torn == "") {
				t.Errorf("left out are %q (%q), %v, want %q", got, torn.Why, err, tt.torn)
			}
		})
	}
}

// TestApartRanks: files without a step whose ranks may differ.
func TestApartRanks(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_000_000, 0)
	of := func(after time.Duration) *fstest.MapFile { return &fstest.MapFile{ModTime: begin.Add(after)} }
	for want, folder := range map[string]fstest.MapFS{
		"":                    {"state-worker-0.json": of(0), "state-worker-1.json": of(time.Second), "step-1/rank-0.pt": of(0), "step-1/rank-1.pt": of(time.Hour)},
		"state-worker-#.json": {"state-worker-0.json": of(0), "state-worker-1.json": of(5 * time.Second)},
	} {
		if got, err := ApartRanks(folder); got != want || err != nil {
			t.Errorf("apart are %q, %v, want %q", got, err, want)
		}
	}
}

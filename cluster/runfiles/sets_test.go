package runfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSetAside: which checkpoints a restart leaves out.
func TestSetAside(t *testing.T) {
	t.Parallel()
	const state = `model_checkpoint_path: "ckpt-18"` + "\n"
	for name, tt := range map[string]struct{ files, torn string }{
		"whole sets":       {"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-0.pt step-17/rank-1.pt", ""},
		"a rank is behind": {"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-1.pt", "step-17/rank-1.pt"},
		"two sets are torn": {
			"step-8/rank-0.pt step-8/rank-1.pt step-9/rank-0.pt step-10/rank-0.pt", "step-10/rank-0.pt step-9/rank-0.pt",
		},
		"numbers are no text": {
			"step-9/rank-0.pt step-9/rank-1.pt step-10/rank-0.pt step-10/rank-1.pt step-11/rank-0.pt", "step-11/rank-0.pt",
		},
		"on its way": {
			"step-16/rank-0.pt step-16/rank-1.pt step-17/rank-0.pt step-17/.part-rank-1.pt", "step-17/rank-0.pt",
		},
		"fewer ranks " +
			"than before": {"step-1/rank-0 step-1/rank-1 step-1/rank-2 step-1/rank-3 step-2/rank-0 step-2/rank-1", ""},
		"chief and worker": {"step-1/chief-0.pt step-1/worker-0.pt step-2/worker-0.pt", "step-2/worker-0.pt"},
		"samples": {
			"step-1/model.pt step-1/sample-0.png step-1/sample-1.png step-2/model.pt step-2/sample-0.png", "",
		},
		"folds alone":        {"fold-0/step-1.h5 fold-1/step-1.h5 fold-0/step-2.h5", ""},
		"steps alone":        {"17/rank-0 17/rank-1 18/rank-1", "18/rank-1"},
		"parts of one model": {"layer-0-rank-0.pt layer-0-rank-1.pt layer-5-rank-1.pt", ""},
		"shards now and then": {
			"step-10/model.pt step-10/rank-0 step-10/rank-1 step-11/model.pt step-12/model.pt", "",
		},
		"shards behind models":     {"step-1/rank-0 step-1/rank-1 step-2/rank-0 step-3/model.pt", "step-2/rank-0"},
		"words that end in others": {"steps_1/best.pt steps_1/a.pt heatmaps-1/x heatmaps-2/x steps_2/a.pt", ""},
		"one step of several files": {
			"model-step-1.pt optim-rank0-step-1.pt optim-rank1-step-1.pt model-step-2.pt optim-rank1-step-2.pt",
			"model-step-2.pt optim-rank1-step-2.pt",
		},
		"folds":                    {"epoch-1/fold-0.h5 epoch-1/fold-1.h5 epoch-2/fold-0.h5", ""},
		"hosts":                    {"step-1/host-0.npz step-1/host-1.npz step-2/host-0.npz", "step-2/host-0.npz"},
		"one rank":                 {"step-16/model.pt step-17/model.pt", ""},
		"the step behind the rank": {"rank-0/step-3.pt rank-1/step-3.pt rank-0/step-4.pt", "rank-0/step-4.pt"},
		"in the name":              {"w0-step3.bin w1-step3.bin w1-step4.bin", "w1-step4.bin"},
		"shards": {
			"ckpt-17.data-00000-of-00002 ckpt-17.data-00001-of-00002 ckpt-17.index ckpt-18.data-00000-of-00002 ckpt-18.index",
			"ckpt-18.data-00000-of-00002 ckpt-18.index",
		},
		"shards that are listed": {
			"checkpoint ckpt-17.data-00000-of-00002 ckpt-17.data-00001-of-00002 ckpt-17.index ckpt-18.data-00000-of-00002 " +
				"ckpt-18.index", "",
		},
		"an optional file " +
			"is no set": {"step-1/rank-0.pt step-1/rank-1.pt step-1/best.pt step-2/rank-0.pt step-2/rank-1.pt", ""},
		"without a step": {"state-worker-0.json state-worker-1.json weights.keras", ""},
		"the first set":  {"step-1/rank-0.pt", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name := range strings.FieldsSeq(tt.files) {
				name = filepath.Join(dir, "run-001", checkpoints, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
					os.WriteFile(name, []byte(state), 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			storage := NewLocal(dir)
			notes, err := NewReceiver(storage, dir, nil, nil).SetAside(1, 2, 2)
			found, lerr := storage.Files("run-001/torn/2")
			var torn []string
			for _, f := range found {
				torn = append(torn, strings.TrimPrefix(f.Path, "run-001/torn/2/"))
			}
			slices.Sort(torn)
			if got := strings.Join(torn, " "); got != tt.torn || err != nil || lerr != nil ||
				len(notes) == 0 != (tt.torn == "") {
				t.Errorf("left out are %q (%q), %v, %v, want %q", got, notes, err, lerr, tt.torn)
			}
			_ = filepath.WalkDir(filepath.Join(dir, "run-001", checkpoints), func(name string, _ fs.DirEntry, _ error) error {
				if entries, err := os.ReadDir(name); err == nil && len(entries) == 0 && filepath.Base(name) != checkpoints {
					t.Errorf("%s is left behind, empty", name)
				}
				return nil
			})
		})
	}
}

// TestTornSetsOfMany: the time for 20,000 sets, of which all but the first are torn, is that of reading them.
func TestTornSetsOfMany(t *testing.T) {
	t.Parallel()
	files := []File{{Path: "step-0/rank-1.pt"}}
	for n := range 20_000 {
		files = append(files, File{Path: fmt.Sprintf("step-%d/rank-0.pt", n)})
	}
	began := time.Now()
	torn, newest := tornSets(files, nil, 2, nil)
	if len(torn) != 19_999 || newest["step-"] != 0 || torn[0].name != "step-19999" {
		t.Errorf("%d torn, newest %v", len(torn), newest)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestSetAsideKeepsWhatIsResumed: what a run has continued from stays, although an earlier one had more ranks.
func TestSetAsideKeepsWhatIsResumed(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	for _, name := range []string{"1/rank-0", "1/rank-1", "1/rank-2", "1/rank-3", "2/rank-0", "2/rank-1"} {
		e.write("checkpoints/step-"+name, "x")
	}
	e.round(true)
	for _, tt := range []struct{ attempt, ranks, torn int }{{0, 2, 0}, {1, 4, 0}} {
		if notes, err := b.receiver.SetAside(1, tt.attempt, tt.ranks); err != nil || len(notes) != tt.torn {
			t.Errorf("after attempt %d are set aside %q: %v", tt.attempt, notes, err)
		}
	}
	e.write("checkpoints/step-3/rank-3", "x")
	e.round(true)
	if notes, err := b.receiver.SetAside(1, 1, 4); err != nil || len(notes) != 1 {
		t.Errorf("set aside are %q: %v", notes, err)
	}
}

// TestSetAsideReachesExecutors: what the driver has set aside is on no executor's disk after it has fetched the
// checkpoints, not even on that of the rank that wrote it.
func TestSetAsideReachesExecutors(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ranks := []*executor{b.executor("0"), b.executor("1")}
	for n, e := range ranks {
		e.write(fmt.Sprintf("checkpoints/step-1/rank-%d", n), "1")
	}
	ranks[1].write("checkpoints/step-2/rank-1", "2")
	for _, e := range ranks {
		e.round(true)
	}
	if notes, err := b.receiver.SetAside(1, 1, 2); err != nil || len(notes) != 1 {
		t.Fatalf("set aside are %q: %v", notes, err)
	}
	for _, e := range ranks {
		if err := NewMirror(e.Sender, 1, "checkpoints").Pull(e.ctx); err != nil {
			t.Fatal(err)
		}
		e.round(true) // must send nothing back
		found, err := filepath.Glob(filepath.Join(e.dir, "run-001/checkpoints/*/*"))
		if err != nil || len(found) != 2 || !strings.HasSuffix(found[0], "step-1/rank-0") ||
			!strings.HasSuffix(found[1], "step-1/rank-1") {
			t.Errorf("an executor has %q: %v", found, err)
		}
	}
	b.want("run-001/checkpoints/step-1/rank-0", "run-001/checkpoints/step-1/rank-1", "run-001/torn/1/step-2/rank-1")
}

// TestApartRanks: files without a step whose ranks may differ.
func TestApartRanks(t *testing.T) {
	t.Parallel()
	of := func(name string, after time.Duration) File {
		return File{Path: name, Modified: time.Unix(1_000_000, 0).Add(after)}
	}
	for want, files := range map[string][]File{
		"": {
			of("state-worker-0.json", 0), of("state-worker-1.json", time.Second), of("step-1/rank-0.pt", 0),
			of("step-1/rank-1.pt", time.Hour),
		},
		"state-worker-#.json": {of("state-worker-0.json", 0), of("state-worker-1.json", 5*time.Second)},
	} {
		if got := apartRanks(files); got != want {
			t.Errorf("apart are %q, want %q", got, want)
		}
	}
}

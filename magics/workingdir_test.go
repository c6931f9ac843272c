package magics

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/result"
)

// TestWorkingDirOption: a relative --working-dir is below the notebook's folder on this
// machine; elsewhere, where that folder is not, it is refused.
func TestWorkingDirOption(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		backend, given string
		files          bool
		want, refused  string
	}{
		{backend: "local", given: "data", want: "/work/dir/data"},
		{backend: "local", given: "/data/../x", want: "/x"},
		{backend: "spark", given: "/mnt/x/", want: "/mnt/x"},
		{backend: "spark"},
		{
			backend: "yarn", given: "data",
			refused: "start: --working-dir data: on yarn it must be absolute, a folder that every executor has",
		},
		{
			backend: "spark", given: "/mnt", files: true,
			refused: "start: --working-dir: the files of --files lie in each task's own folder on spark; give one of the two",
		},
	} {
		d := newFakeDrivers(t)
		s := newTestSession(t, d, "")
		req := &clusterpb.ReserveRequest{Name: "c", Backend: tt.backend, Roles: []*clusterpb.Role{{Name: "worker", Count: 1}}}
		if tt.files {
			req.Ship = []*clusterpb.GivenFile{{Path: "/x", Name: "x"}}
		}
		f := d.add(req)
		line := "%tfcluster start -c c main_fun"
		if tt.given != "" {
			line = "%tfcluster start -c c --working-dir " + tt.given + " main_fun"
		}
		_, err := runCode(t.Context(), s, line, newRecord(), &fakePython{})
		if tt.refused != "" {
			if r := result.NewReport(err); r == nil || r.Code != 2 || !strings.Contains(r.Value, tt.refused) {
				t.Errorf("%s on %s: %v, want %q", line, tt.backend, err, tt.refused)
			}
			continue
		}
		f.mu.Lock()
		if err != nil || len(f.starts) != 1 || f.starts[0].GetOptions().GetStartIn() != tt.want ||
			f.starts[0].GetOptions().GetWorkingDir() != "/work/dir" {
			t.Errorf("%s on %s asks for %v: %v", line, tt.backend, f.starts, err)
		}
		f.mu.Unlock()
	}
}

// TestWorkingDirIsAskedOnce: a verb asks Python for its folder once, however often it needs that: a
// Python that hangs costs its time limit once.
func TestWorkingDirIsAskedOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte("pass\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newTestSession(t, newFakeDrivers(t), "")
	for _, line := range []string{
		"reserve", "start main_fun", "start " + dir + "/train.py", "start --again", "tensorboard --logdir logs",
	} {
		py := &fakePython{}
		if _, err := s.RunLine(t.Context(), line, nil, newRecord(), py); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		asked := 0
		for _, fn := range py.calls {
			if fn == "cwd" {
				asked++
			}
		}
		if asked != 1 {
			t.Errorf("%s asks %d times", line, asked)
		}
	}
}

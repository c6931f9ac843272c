package verbs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
	"github.com/tfcluster/tfcluster/rdma/fabric"
)

// TestFindExtension: an extension below the prefix of the notebook's Python is found, though no
// environment is activated.
func TestFindExtension(t *testing.T) {
	for _, name := range []string{
		"JUPYTER_DATA_DIR", "JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_DATA_HOME", "PATH",
	} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	prefix := t.TempDir()
	if f := findExtension(prefix, false); f.remedy == "" {
		t.Errorf("without one it finds %+v", f)
	}
	installed := filepath.Join(prefix, "share/jupyter/labextensions/tfcluster-lab")
	if err := os.MkdirAll(installed, 0o700); err != nil {
		t.Fatal(err)
	}
	if f := findExtension(prefix, false); f.found != installed || f.remedy != "" {
		t.Errorf("it finds %+v", f)
	}
	t.Setenv("VIRTUAL_ENV", prefix)
	if f := findExtension(t.TempDir(), false); f.found != installed || f.remedy != "" {
		t.Errorf("in the active environment it finds %+v", f)
	}
}

// TestDoctorView: what pip installs into one interpreter is one line.
func TestDoctorView(t *testing.T) {
	t.Parallel()
	uv := t.TempDir()
	for name, content := range map[string]string{
		"pyvenv.cfg": "uv = 0.13.9\n", "lib/python3.11/site-packages/x.py": "", "bin/python": "",
	} {
		path := filepath.Join(uv, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		executable.Write(t, path, content)
	}
	findings := []finding{
		finding{what: "ipykernel", found: "not installed"}.install(uv+"/bin/python", "ipykernel"),
		finding{what: "keras", found: "not installed"}.install(uv+"/bin/python", "keras"),
		{what: "Python", found: "/usr/bin/python3, 3.11"},
		finding{what: "cloudpickle", found: "not installed"}.install("/usr/bin/python3", "cloudpickle"),
		finding{what: "tensorflow", found: "not installed"}.install("/usr/bin/python3", "tensorflow"),
		finding{what: "TensorBoard", found: "not installed"}.install("/tb/python", "tensorboard setuptools"),
		{what: "Spark", found: "no pyspark", remedy: "/usr/bin/python3 -m pip install pyspark of the cluster's version"},
	}
	title, lacks := doctorTitle(findings)
	if title != "6 things are missing or wrong" || !lacks {
		t.Error(title, lacks)
	}
	b := doctorView(findings, title)
	for _, want := range []string{
		"\n/usr/bin/python3 -m pip install cloudpickle tensorflow\n", "\n/tb/python -m pip install tensorboard setuptools\n",
		"pyspark of the cluster's version", "\nuv pip install --python " + uv + "/bin/python ipykernel keras\n",
	} {
		if !strings.Contains(b.Text, want) {
			t.Errorf("no %q in\n%s", want, b.Text)
		}
	}
	if title, lacks = doctorTitle(findings[2:3]); title != "nothing is missing" || lacks {
		t.Error(title, lacks)
	}
}

// TestPythonVersions: the versions that doctor takes for tested are those that the wheel is said to be for.
func TestPythonVersions(t *testing.T) {
	t.Parallel()
	project, err := os.ReadFile("../../pyproject.toml")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`"Programming Language :: Python :: (3\.\d+)"`).FindAllStringSubmatch(
		string(project), -1) {
		listed = append(listed, m[1])
	}
	var tested []string
	for minor := oldestPython; minor <= newestPython; minor++ {
		tested = append(tested, fmt.Sprintf("3.%d", minor))
	}
	if !slices.Equal(listed, tested) {
		t.Errorf("pyproject.toml has classifiers for %v, doctor knows %v", listed, tested)
	}
	text := func(version, tensorflow string) string {
		return doctorView(findPackages("/usr/bin/python3", map[string]string{
			"python": version, "ipykernel": "7", "cloudpickle": "3", "pyarrow": "26", "tensorflow": tensorflow,
		}), "").Text
	}
	for _, tt := range []struct {
		version, tensorflow, want, not string
	}{
		{"3.13.0", "", "-m pip install tensorflow", "not tested"},
		{"3.14.0", "", "3.14.0: not tested, as 3.11 to 3.13 are", "pip install"},
		{"3.14.0", "", "Python 3.11 to 3.13: TensorFlow may have no wheel for 3.14.0", "pip install"},
		{"3.14.0rc2", "2.30.0", "3.14.0rc2: not tested", "tensorflow   not installed"},
		{"3.10.13", "", "install Python 3.11 to 3.13", "pip install"},
	} {
		if got := text(tt.version, tt.tensorflow); !strings.Contains(got, tt.want) || strings.Contains(got, tt.not) {
			t.Errorf("Python %s: want %q and not %q in\n%s", tt.version, tt.want, tt.not, got)
		}
	}
}

// TestFullPath: a program that is given by a relative path is found from any folder.
func TestFullPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	executable.Write(t, "python", "")
	if got := fullPath("./python"); !filepath.IsAbs(got) || filepath.Base(got) != "python" {
		t.Errorf("the path is %s", got)
	}
	if got := fullPath("./none"); got != "./none" {
		t.Errorf("a program that is not there is %s", got)
	}
}

// TestNetworkFinding: an active port that cannot be used is missing something; one that is down, or of a kind that NCCL
// does not use, is not.
func TestNetworkFinding(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		ports         []fabric.Port
		found, remedy string
	}{
		{nil, "no device: tasks of several hosts use TCP", ""},
		{[]fabric.Port{{Device: "mlx5_0", Number: 1, Link: fabric.RoCE2, Rate: 100}}, "mlx5_0:1 RoCE v2 100 Gb/s", ""},
		{[]fabric.Port{{Device: "a", Number: 1, Link: fabric.IWARP, Problem: "not used"}, {
			Device:  "b",
			Number:  2,
			Problem: "its state is DOWN",
		}}, "a:1 iWARP (not used), b:2 (its state is DOWN)", ""},
		{
			[]fabric.Port{{Device: "a", Number: 1, Link: fabric.InfiniBand, Problem: "no", Remedy: "do this"}},
			"a:1 InfiniBand (no)", "do this",
		},
	} {
		if f := networkFinding(&fabric.Executor{Ports: tt.ports}); f.found != tt.found || f.remedy != tt.remedy {
			t.Errorf("%+v: found %q, remedy %q", tt.ports, f.found, f.remedy)
		}
	}
}

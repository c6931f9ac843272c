package verbs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFindExtension: an extension below the prefix of the notebook's Python is found, though no
// environment is activated.
func TestFindExtension(t *testing.T) {
	for _, name := range []string{"JUPYTER_DATA_DIR", "JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_DATA_HOME", "PATH"} {
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
	for name, content := range map[string]string{"pyvenv.cfg": "uv = 0.13.9\n", "lib/python3.11/site-packages/x.py": "", "bin/python": ""} {
		path := filepath.Join(uv, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
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
		"\n/usr/bin/python3 -m pip install cloudpickle tensorflow\n", "\n/tb/python -m pip install tensorboard setuptools\n", "pyspark of the cluster's version",
		"\nuv pip install --python " + uv + "/bin/python ipykernel keras\n",
	} {
		if !strings.Contains(b.Text, want) {
			t.Errorf("no %q in\n%s", want, b.Text)
		}
	}
	if title, lacks = doctorTitle(findings[2:3]); title != "nothing is missing" || lacks {
		t.Error(title, lacks)
	}
}

// TestFullPath: a program that is given by a relative path is found from any folder.
func TestFullPath(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("python", nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := fullPath("./python"); !filepath.IsAbs(got) || filepath.Base(got) != "python" {
		t.Errorf("the path is %s", got)
	}
	if got := fullPath("./none"); got != "./none" {
		t.Errorf("a program that is not there is %s", got)
	}
}

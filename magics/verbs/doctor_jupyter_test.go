package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestServerPython: the interpreter of the process that Jupyter names, by the path with which it was started.
func TestServerPython(t *testing.T) {
	real, err := exec.LookPath("sleep")
	if err != nil {
		t.Skip("missing: sleep")
	}
	start := func(path string) string {
		cmd := exec.Command(real, "60")
		cmd.Args[0] = path
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // killed
		})
		pid := strconv.Itoa(cmd.Process.Pid)
		// Start returns when the program replaces the process, which has no arguments yet for a moment.
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if line, err := os.ReadFile("/proc/" + pid + "/cmdline"); err != nil || len(line) > 0 {
				return pid
			}
		}
		t.Fatalf("process %s has no arguments", pid)
		return ""
	}
	for pid, want := range map[string]string{
		"": "", "../self": "", "999999999": "",
		start("/opt/my env/bin/python3.11"): "/opt/my env/bin/python3.11", start("/usr/bin/node"): "",
	} {
		t.Setenv(jupyterPID, pid)
		if got := serverPython(); got != want {
			t.Errorf("process %s: %q, want %q", pid, got, want)
		}
	}
}

// TestJupyterInAnotherEnvironment: doctor says how the kernel gets into the environment of the server.
func TestJupyterInAnotherEnvironment(t *testing.T) {
	for _, name := range []string{"JUPYTER_DATA_DIR", "JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_DATA_HOME", "PATH"} {
		t.Setenv(name, "")
	}
	t.Setenv("HOME", t.TempDir())
	lab, own := filepath.Join(t.TempDir(), "my lab"), t.TempDir()
	if err := os.MkdirAll(filepath.Join(own, "share/jupyter/labextensions/tfcluster-lab"), 0o700); err != nil {
		t.Fatal(err)
	}
	text := func(j jupyter) string {
		return doctorView(j.findings(own), "").Text
	}
	apart := jupyter{python: lab + "/bin/python", prefix: lab, lab: "4.6.6", program: own + "/bin/tfcluster", server: true}
	for _, want := range []string{
		"another environment than the kernel's", "not installed where JupyterLab runs",
		own + "/bin/tfcluster install --prefix '" + lab + "', then restart Jupyter", "'" + lab + "/bin/python' -m pip install jupyter-server-proxy",
	} {
		if got := text(apart); !strings.Contains(got, want) {
			t.Errorf("apart: no %q in\n%s", want, got)
		}
	}
	if got := strings.Count(text(apart), "install --prefix"); got != 2 { // the extension, and the server's entry
		t.Errorf("apart: %d rows name install --prefix:\n%s", got, text(apart))
	}
	// The server was started where the kernel's environment is active: it has no folder of that.
	for _, name := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		t.Setenv(name, own)
		if got := text(apart); !strings.Contains(got, "not installed where JupyterLab runs") {
			t.Errorf("with %s of the kernel's environment:\n%s", name, got)
		}
		t.Setenv(name, "")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(own, link); err != nil {
		t.Fatal(err)
	}
	linked := jupyter{python: link + "/bin/python", prefix: link, lab: "4.6.6", proxy: "4.6.0", program: own + "/bin/tfcluster", server: true}
	if got := text(linked); strings.Contains(got, "another environment") {
		t.Errorf("in one environment, by a link:\n%s", got)
	}
	apart.tfcluster = "0.1.0"
	if got := text(apart); !strings.Contains(got, "tfcluster 0.1.0 in "+lab) {
		t.Errorf("with pip's tfcluster beside JupyterLab:\n%s", got)
	}
	same := jupyter{python: own + "/bin/python", prefix: own, lab: "4.6.6", proxy: "4.6.0", program: own + "/bin/tfcluster", server: true}
	if got := text(same); strings.Contains(got, "--") {
		t.Errorf("in one environment:\n%s", got)
	}
	alone := jupyter{python: own + "/bin/python", prefix: own, proxy: "4.6.0", program: own + "/bin/tfcluster"}
	if got := text(alone); !strings.Contains(got, "for one in another: "+own+"/bin/tfcluster install --prefix ITS_FOLDER") {
		t.Errorf("without JupyterLab:\n%s", got)
	}
}

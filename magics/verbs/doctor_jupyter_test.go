package verbs

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/magics/session"
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
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
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
	for _, name := range []string{
		"JUPYTER_DATA_DIR", "JUPYTER_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "XDG_DATA_HOME", "PATH",
	} {
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
		own + "/bin/tfcluster install --prefix '" + lab + "', then restart Jupyter", "'" + lab +
			"/bin/python' -m pip install jupyter-server-proxy",
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
	linked := jupyter{
		python: link + "/bin/python", prefix: link, lab: "4.6.6", proxy: "4.6.0", program: own +
			"/bin/tfcluster", server: true,
	}
	if got := text(linked); strings.Contains(got, "another environment") {
		t.Errorf("in one environment, by a link:\n%s", got)
	}
	apart.tfcluster = "0.1.0"
	if got := text(apart); !strings.Contains(got, "tfcluster 0.1.0 in "+lab) {
		t.Errorf("with pip's tfcluster beside JupyterLab:\n%s", got)
	}
	same := jupyter{
		python: own + "/bin/python", prefix: own, lab: "4.6.6", proxy: "4.6.0", program: own + "/bin/tfcluster", server: true,
	}
	if got := text(same); strings.Contains(got, "--") {
		t.Errorf("in one environment:\n%s", got)
	}
	alone := jupyter{python: own + "/bin/python", prefix: own, proxy: "4.6.0", program: own + "/bin/tfcluster"}
	if got := text(alone); !strings.Contains(got, "for one in another: "+own+
		"/bin/tfcluster install --prefix ITS_FOLDER") {
		t.Errorf("without JupyterLab:\n%s", got)
	}
}

// TestFlaws: packages with a known flaw have a row each, with the command that installs the fix.
func TestFlaws(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		versions map[string]string
		want     []string
		missing  string // the title's count
	}{
		{"all new", map[string]string{
			"jupyter-server": "2.21.1", "jupyterlab": "4.6.6", "notebook": "7.6.5", "jupyter-server-proxy": "4.6.0",
		}, []string{
			"ok  security advisories  none known for jupyter-server-proxy 4.6.0, jupyter-server 2.21.1, jupyterlab 4.6.6, " +
				"notebook 7.6.5",
		}, "nothing is missing"},
		{"some old", map[string]string{
			"jupyter-server":       "2.21.1",
			"jupyterlab":           "4.5.6",
			"jupyter-server-proxy": "4.1.0",
		}, []string{
			"none known for jupyter-server 2.21.1", "4.5.6: CVE-2026-42557, a click", "CVE-2026-40171",
			"4.1.0: CVE-2024-28179, WebSockets are proxied without authentication; CVE-2024-35225",
			"\n/lab/bin/python -m pip install 'jupyter-server-proxy>=4.2.0' 'jupyterlab>=4.5.7'\n",
		}, "2 things are missing or wrong"},
		{"none installed", nil, nil, "nothing is missing"},
	} {
		findings := jupyter{python: "/lab/bin/python", versions: tt.versions}.flaws()
		title, _ := doctorTitle(findings)
		text := doctorView(findings, title).Text
		for _, want := range tt.want {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", tt.name, want, text)
			}
		}
		if title != tt.missing {
			t.Errorf("%s: %s", tt.name, title)
		}
	}
}

// TestEncryption: clear text that leaves this machine is a fault, Jupyter's default is not.
func TestEncryption(t *testing.T) {
	t.Parallel()
	recent := map[string]string{"jupyter-client": "8.10.0", "jupyter-server": "2.21.1"}
	const setting = `c.MappingKernelManager.transport_encryption = "auto" in jupyter_server_config.py`
	for _, tt := range []struct {
		channels session.Channels
		err      error
		versions map[string]string
		found    string
		remedy   string
	}{
		{session.Channels{Encrypted: true, Host: "10.0.0.1"}, nil, recent, "encrypted (CURVE)", ""},
		{session.Channels{}, nil, recent, "Unix sockets of this user", ""},
		{
			session.Channels{Host: "127.0.0.1"},
			nil, recent, "signed clear text on this machine (127.0.0.1); to encrypt them: " + setting, "",
		},
		{session.Channels{Host: "::1"}, nil, nil, "signed clear text on this machine (::1); to encrypt them: " + setting, ""},
		{
			session.Channels{Host: "localhost"}, nil, map[string]string{"jupyter-client": "8.6.3"}, "to encrypt them: " +
				"jupyter_client 8.9 and jupyter_server 2.20 or newer, and " + setting, "",
		},
		{
			session.Channels{Host: "10.0.0.1"}, nil, recent, "who reads the network reads code and outputs", setting +
				", then restart Jupyter",
		},
		{
			session.Channels{Host: "0.0.0.0"}, nil, map[string]string{"jupyter-server": "2.19"}, "signed clear text " +
				"at 0.0.0.0", "jupyter_server 2.20 or newer",
		},
		{session.Channels{}, errors.New("no such file"), recent, "not known: no such file", "start the kernel again"},
	} {
		f := jupyter{versions: tt.versions}.encryption(tt.channels, tt.err)
		if !strings.Contains(f.found, tt.found) || (f.remedy == "") != (tt.remedy == "") ||
			!strings.Contains(f.remedy, tt.remedy) {
			t.Errorf("%+v: %q, remedy %q", tt, f.found, f.remedy)
		}
	}
}

package magics

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// TestConfiguration: files, profile, environment and options, later over earlier.
func TestConfiguration(t *testing.T) {
	user, work := t.TempDir(), t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", user)
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(user, "tfcluster", "config.toml"),
		"workers = 3\nps_memory = \"1g\"\nevaluator-memory = \"1g\"\nidle = \"2h\"\nqueue = \"research\"\nmax-restarts = 4\n"+
			"[env]\nA = \"1\"\nB = true\nC = false\nD = 2\n[profile.big]\nworkers = 8\nchief = true\n")
	write(filepath.Join(work, "tfcluster.toml"), "idle = \"never\"\nreserve-timeout = \"3m\"\n[profile.big]\nps = 2\n")
	reserve := func(line string) (*fakeCluster, error) {
		d := newFakeDrivers(t)
		s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: d, WorkingDir: work})
		t.Cleanup(s.Close)
		_, err := runCode(t.Context(), s, "%tfcluster reserve "+line+"\n%tfcluster start --show chief a.py", newRecord(), nil)
		return d.get("local-1"), err
	}
	write(filepath.Join(work, "a.py"), "pass")
	f, err := reserve("--ps 1 --timeout 1m")
	if err != nil {
		t.Fatal(err)
	}
	if r := f.request; len(r.GetRoles()) != 2 || r.GetRoles()[0].GetCount() != 3 ||
		r.GetRoles()[1].GetEach().GetMemoryBytes() != 1<<30 || r.GetIdleMillis() != 0 || r.GetTimeoutMillis() != 60_000 {
		t.Errorf("the request is %v", r)
	}
	if want := map[string]string{"A": "1", "B": "true", "C": "false", "D": "2"}; !maps.Equal(f.request.GetEnv(), want) {
		t.Errorf("the tasks' environment is %v, want %v", f.request.GetEnv(), want)
	}
	if f.starts[0].GetOptions().GetMaxRestarts() != 4 {
		t.Errorf("the start is %v", f.starts[0])
	}
	t.Setenv("TFCLUSTER_IDLE", "5m")
	f, err = reserve("--profile big --ps 3")
	if err != nil {
		t.Fatal(err)
	}
	if r := f.request; len(r.GetRoles()) != 3 || r.GetRoles()[1].GetCount() != 8 || r.GetRoles()[2].GetCount() != 3 ||
		r.GetIdleMillis() != 300_000 || r.GetTimeoutMillis() != 180_000 {
		t.Errorf("the request is %v", r)
	}
	if _, err := reserve("--profile small"); err == nil || !strings.Contains(err.Error(), "choose one of: big") {
		t.Errorf("an unknown profile gives %v", err)
	}
	write(filepath.Join(work, "tfcluster.toml"), "worker = 3\n")
	if _, err := reserve(""); err == nil || !strings.Contains(err.Error(), "no option worker: did you mean workers?") {
		t.Errorf("an unknown option gives %v", err)
	}
	for _, text := range []string{
		"python = \"./python\"", "[env]\nLD_PRELOAD = \"./x.so\"", "ps_command = \"./run\"",
		"[profile.big]\nworker_command = \"./run\"", "packages = \"a:b:1\"", "backend = \"spark\"",
		"master = \"spark://elsewhere:7077\"", "session = \"spark\"", "files = [\"/home/me/.ssh\"]", "advertise = " +
			"\"0.0.0.0\"", "dir = \"/etc\"", "retention = \"1s\"", "replace = true", "working_dir = \"/\"", "resume = \"last\"",
	} {
		write(filepath.Join(work, "tfcluster.toml"), text)
		if _, err := reserve(""); err == nil || !strings.Contains(err.Error(), "may not be set by the file of a "+
			"notebook's folder") || !strings.Contains(err.Error(), "config.toml of "+filepath.Join(user, "tfcluster")) {
			t.Errorf("%s of the notebook's folder gives %v", text, err)
		}
	}
	write(filepath.Join(work, "tfcluster.toml"), "workers = \"many\"\n")
	if _, err := reserve(""); err == nil || !result.NewReport(err).Usage {
		t.Errorf("a bad value gives %v", err)
	}
	write(filepath.Join(work, "tfcluster.toml"), "workers = = 3\n")
	if _, err := reserve(""); err == nil || strings.Contains(err.Error(), "\n") || !result.NewReport(err).Usage {
		t.Errorf("a broken file gives %v", err)
	}
}

// TestConfigurationErrorSource: the error of a wrong value says where the value is from.
func TestConfigurationErrorSource(t *testing.T) {
	for name, tt := range map[string]struct{ file, variable, want string }{
		"a file":          {file: "memory = \"much\"\n", want: "/tfcluster.toml: reserve: --memory: "},
		"the environment": {variable: "much", want: "TFCLUSTER_MEMORY in the environment: reserve: --memory: "},
		"both, the later": {
			file: "memory = \"4g\"\n", variable: "much", want: "TFCLUSTER_MEMORY in the environment: reserve: --memory: ",
		},
		"an option of role": {
			file: "worker_memory = \"much\"\n", variable: "4g", want: "/tfcluster.toml: reserve: --worker-memory: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			t.Setenv("TFCLUSTER_MEMORY", tt.variable)
			work := t.TempDir()
			if err := os.WriteFile(filepath.Join(work, "tfcluster.toml"), []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: newFakeDrivers(t), WorkingDir: work})
			t.Cleanup(s.Close)
			_, err := runCode(t.Context(), s, "%tfcluster reserve", newRecord(), nil)
			if err == nil || !strings.HasPrefix(strings.TrimPrefix(err.Error(), work), tt.want) || !result.NewReport(err).Usage {
				t.Errorf("the error is %v, want %s", err, tt.want)
			}
		})
	}
}

// TestTrust: a file that is trusted sets every option, until it changes.
func TestTrust(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("TFCLUSTER_HOME", t.TempDir())
	work := t.TempDir()
	file := filepath.Join(work, "tfcluster.toml")
	run := func(line string) (*record, error) {
		t.Helper()
		s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: newFakeDrivers(t), WorkingDir: work})
		t.Cleanup(s.Close)
		rec := newRecord()
		_, err := runCode(t.Context(), s, "%tfcluster "+line, rec, nil)
		return rec, err
	}
	if _, err := run("trust"); err == nil || !strings.Contains(err.Error(), "there is no tfcluster.toml in "+work) {
		t.Errorf("without a file: %v", err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("dir = \"results\" # \u202e\n")
	if _, err := run("reserve"); err == nil {
		t.Error("a stranger's file sets --dir")
	}
	if rec, err := run("trust"); err != nil || !strings.Contains(rec.settle(), "dir = \"results\" # \uFFFD") {
		t.Errorf("trust shows %q, %v", rec.settle(), err)
	}
	if _, err := run("reserve"); err != nil {
		t.Errorf("a trusted file: %v", err)
	}
	write("dir = \"elsewhere\"\n")
	if _, err := run("reserve"); err == nil {
		t.Error("a file that has changed is still trusted")
	}
	if _, err := run("trust"); err != nil {
		t.Fatal(err)
	}
	if _, err := run("trust --revoke"); err != nil {
		t.Fatal(err)
	}
	if _, err := run("reserve"); err == nil {
		t.Error("trust cannot be revoked")
	}
}

// TestConfigurationFiles: what is no file of a few settings is refused, and does not hold the notebook.
func TestConfigurationFiles(t *testing.T) {
	for name, create := range map[string]func(path string) error{
		"not a regular file": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"more than 1 MB":     func(path string) error { return os.WriteFile(path, make([]byte, 2<<20), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("XDG_CONFIG_HOME", t.TempDir())
			work := t.TempDir()
			if err := create(filepath.Join(work, "tfcluster.toml")); err != nil {
				t.Fatal(err)
			}
			s := NewSession(t.Context(), session.Options{Engines: engines(), Connector: newFakeDrivers(t), WorkingDir: work})
			t.Cleanup(s.Close)
			if _, err := runCode(t.Context(), s, "%tfcluster reserve", newRecord(), nil); err == nil ||
				!strings.Contains(err.Error(), name) {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

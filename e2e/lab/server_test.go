package lab

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	startTimeout = 2 * time.Minute // on a loaded machine
	stopTimeout  = 2 * time.Minute // until the kernels have ended
	removeLimit  = time.Minute
)

// Server is the JupyterLab or Notebook 7 of one test. It has separate home, data, configuration and runtime
// folders, and reads none of the user's.
type Server struct {
	Base string // base URL, with a slash at the end
	Root string // notebooks
	Home string

	page  string // where a notebook is opened, below Base
	hub   string // base URL of the JupyterHub that starts it, or ""
	token string
	log   string
	done  chan struct{} // closed when the process has ended
}

// repository returns the enclosing folder with go.mod.
func repository(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test's folder")
		}
		dir = parent
	}
}

// jupyter returns the jupyter command of TFCLUSTER_TEST_PYTHON or of the project's environment, which has app.
func jupyter(t testing.TB, app string) string {
	t.Helper()
	python := os.Getenv("TFCLUSTER_TEST_PYTHON")
	if python == "" {
		python = filepath.Join(repository(t), ".venv", "bin", "python")
	}
	path := filepath.Join(filepath.Dir(python), "jupyter")
	for _, needed := range []string{path, filepath.Join(filepath.Dir(python), "jupyter-"+app)} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("missing: jupyter %s in the project's Python environment (%s)", app, needed)
		}
	}
	return path
}

// Start runs JupyterLab until the test ends, with the kernels, extensions and configuration below prefix (""
// for those of its Python only), and with env (KEY=VALUE) in addition to the test's environment.
func Start(t testing.TB, prefix string, env ...string) *Server {
	t.Helper()
	return start(t, "lab", "lab/tree", prefix, env, "--LabApp.expose_app_in_browser=True",
		"--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate", "--LabApp.news_url=None")
}

// StartNotebook is Start for Notebook 7.
func StartNotebook(t testing.TB, prefix string) *Server {
	t.Helper()
	return start(t, "notebook", "notebooks", prefix, nil, "--JupyterNotebookApp.expose_app_in_browser=True")
}

// start runs an application of Jupyter's. page is where it opens a notebook.
func start(t testing.TB, app, page, prefix string, env []string, options ...string) *Server {
	t.Helper()
	bin := jupyter(t, app)
	s := newServer(t, page)
	words := append([]string{
		app, "--allow-root", "--no-browser", "--ServerApp.ip=127.0.0.1", "--ServerApp.port=" + freePort(t),
		"--ServerApp.base_url=/user/ana/", "--ServerApp.root_dir=" + s.Root,
	}, options...)
	cmd := exec.Command(bin, words...)
	cmd.Env = append(s.environment(filepath.Dir(bin), prefix), env...)
	s.run(t, cmd)
	s.await(t, func(ctx context.Context) (string, error) { return s.address(ctx, cmd.Process.Pid) })
	return s
}

// newServer returns a server that does not run yet, with its folders.
func newServer(t testing.TB, page string) *Server {
	t.Helper()
	home, err := os.MkdirTemp("", "lab") // a short path, since kernels create sockets below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { removeAll(t, home) })
	s := &Server{
		Root:  filepath.Join(home, "notebooks"),
		Home:  home,
		page:  page,
		token: rand.Text(),
		log:   filepath.Join(t.ArtifactDir(), "jupyterlab.log"),
		done:  make(chan struct{}),
	}
	for _, dir := range []string{s.Root, filepath.Join(home, "run")} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.writeSettings(); err != nil {
		t.Fatal(err)
	}
	return s
}

// writeSettings answers the questions that JupyterLab asks at its first start.
func (s *Server) writeSettings() error {
	dir := filepath.Join(s.Home, "settings", "@jupyterlab", "apputils-extension")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "notification.jupyterlab-settings"), []byte(`{"fetchNews": "false"}`), 0o600)
}

// foreign are the beginnings of the names of variables that a server does not inherit.
var foreign = []string{"JUPYTER", "JPY_", "XDG_", "TFCLUSTER_HOME", "TFCLUSTER_CACHE"}

// environment returns the test's environment with Jupyter's folders replaced.
func (s *Server) environment(bin, prefix string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.ContainsFunc(foreign, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			env = append(env, kv)
		}
	}
	env = append(env,
		"HOME="+s.Home,
		"PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"),
		"JUPYTER_TOKEN="+s.token,
		"JUPYTER_CONFIG_DIR="+filepath.Join(s.Home, "config"),
		"JUPYTER_DATA_DIR="+filepath.Join(s.Home, "data"),
		"JUPYTER_RUNTIME_DIR="+filepath.Join(s.Home, "runtime"),
		"JUPYTERLAB_SETTINGS_DIR="+filepath.Join(s.Home, "settings"),
		"JUPYTERLAB_WORKSPACES_DIR="+filepath.Join(s.Home, "workspaces"),
		"IPYTHONDIR="+filepath.Join(s.Home, "ipython"),
		"XDG_RUNTIME_DIR="+filepath.Join(s.Home, "run"),
		"XDG_STATE_HOME="+filepath.Join(s.Home, "state"),
		"XDG_CONFIG_HOME="+filepath.Join(s.Home, "xdg-config"),
		"XDG_CACHE_HOME="+filepath.Join(s.Home, "cache"),
		"XDG_DATA_HOME="+filepath.Join(s.Home, "xdg-data"),
	)
	if prefix != "" {
		env = append(env,
			"JUPYTER_PATH="+filepath.Join(prefix, "share", "jupyter"),
			"JUPYTER_CONFIG_PATH="+filepath.Join(prefix, "etc", "jupyter"))
	}
	return env
}

// run starts the process, which runs until the test ends. Its death signal applies to the thread that forks it, so
// that thread must wait for its end.
func (s *Server) run(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	out, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.Root, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer close(s.done)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log shows how it ended
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("start JupyterLab: %v", err)
	}
	t.Cleanup(func() { s.stop(t, cmd) })
}

// await waits until the server responds at its address.
func (s *Server) await(t testing.TB, address func(context.Context) (string, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for {
		if base, err := address(ctx); err == nil {
			s.Base = base
			return
		}
		select {
		case <-s.done:
			t.Fatalf("JupyterLab ended:\n%s", s.Log())
		case <-ctx.Done():
			t.Fatalf("JupyterLab did not answer within %s:\n%s", startTimeout, s.Log())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// address returns the URL in the runtime file of a JupyterLab that responds there.
func (s *Server) address(ctx context.Context, pid int) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.Home, "runtime", fmt.Sprintf("jpserver-%d.json", pid)))
	if err != nil {
		return "", err
	}
	var info struct{ URL string }
	if err := json.Unmarshal(b, &info); err != nil {
		return "", err
	}
	return info.URL, responds(ctx, info.URL+"api")
}

// responds returns an error unless a GET succeeds.
func responds(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	if err := resp.Body.Close(); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// stop stops the server, which ends its kernels. After jupyter-server-proxy has started a program, SIGTERM
// raises SystemExit in the running frame, and a task of the event loop may swallow it: then the signal is
// repeated.
func (s *Server) stop(t testing.TB, cmd *exec.Cmd) {
	again := time.NewTicker(5 * time.Second)
	defer again.Stop()
	limit := time.After(stopTimeout)
	_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	for ended := false; !ended; {
		select {
		case <-s.done:
			ended = true
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM) // as above
		case <-limit:
			t.Errorf("JupyterLab did not end within %s:\n%s", stopTimeout, s.Log())
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the error is reported above
			<-s.done
			ended = true
		}
	}
	if t.Failed() {
		t.Logf("JupyterLab wrote:\n%s", s.Log())
	}
}

// Log returns the server's output.
func (s *Server) Log() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return strings.ReplaceAll(string(b), s.token, "TOKEN")
}

func freePort(t testing.TB) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port // if another process binds it first, JupyterLab uses the next one and reports it
}

// removeAll removes a folder to which a kernel may still write while it ends.
func removeAll(t testing.TB, dir string) {
	var err error
	for end := time.Now().Add(removeLimit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = os.RemoveAll(dir); err == nil {
			return
		}
	}
	t.Errorf("remove the test's home: %v", err)
}

package tensorboard

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// findTensorBoard is a Python with TensorBoard.
func findTensorBoard(t *testing.T) string {
	t.Helper()
	python := os.Getenv("TFCLUSTER_TEST_TENSORBOARD_PYTHON")
	if python == "" {
		python = "../.venv-tensorboard/bin/python"
	}
	path, err := filepath.Abs(python)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Skipf("missing: a Python with TensorBoard (%s, or TFCLUSTER_TEST_TENSORBOARD_PYTHON)", path)
	}
	return path
}

// newBoard is a board in the folder of brave-otter, which the test closes. It fails the
// test if anything is left.
func newBoard(t *testing.T, python string) (b *Board, dir string) {
	t.Helper()
	dir = socketDir(t)
	own := filepath.Join(dir, "brave-otter")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(t.TempDir(), "tensorboard.log")
	b = New("brave-otter", python, own, log, nil)
	t.Cleanup(func() {
		for range 2 {
			if err := b.Close(context.Background()); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
		if left, err := os.ReadDir(own); err != nil || len(left) > 0 {
			t.Errorf("Close left %v, %v", left, err)
		}
		if pids := processesOf(own); len(pids) > 0 {
			t.Errorf("Close left the processes %v", pids)
		}
		if text, err := os.ReadFile(log); t.Failed() && err == nil {
			t.Logf("TensorBoard wrote:\n%s", text)
		}
	})
	return b, dir
}

// processesOf are the processes that have a word with text in their command line.
func processesOf(text string) []int {
	paths, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is well formed
	var pids []int
	for _, path := range paths {
		line, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(line, []byte(text)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

func open(t *testing.T, b *Board, logdir string) Address {
	t.Helper()
	a, err := b.Open(t.Context(), logdir)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// logdirShown asks TensorBoard itself, as the browser does, which folder it shows.
func logdirShown(t *testing.T, dir string, a Address) string {
	t.Helper()
	resp, body := get(t, unixClient(t, startBroker(t, dir)), strings.TrimPrefix(a.Path, Prefix)+"data/environment")
	if resp.StatusCode != 200 {
		t.Fatalf("/data/environment: %d %s", resp.StatusCode, body)
	}
	var env struct {
		DataLocation string `json:"data_location"`
	}
	if err := json.Unmarshal([]byte(body), &env); err != nil {
		t.Fatalf("/data/environment: %v: %s", err, body)
	}
	return env.DataLocation
}

func TestBoard(t *testing.T) {
	t.Parallel()
	b, dir := newBoard(t, findTensorBoard(t))
	logs := t.TempDir()

	first := open(t, b, logs)
	if want := fmt.Sprintf("tfcluster/brave-otter/%s/", b.token); first.Path != want || first.Logdir != logs ||
		first.ID == "" || strings.Contains(first.Path, first.ID) {
		t.Errorf("address %+v, want the path %s", first, want)
	}
	if got := logdirShown(t, dir, first); got != logs {
		t.Errorf("TensorBoard shows %q, want %q", got, logs)
	}
	for _, name := range []string{SocketName, "tb.sock"} {
		if info, err := os.Stat(filepath.Join(dir, "brave-otter", name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, want mode 0600", name, info, err)
		}
	}
	pid := b.process.cmd.Process.Pid
	if again := open(t, b, logs); again != first || b.process.cmd.Process.Pid != pid {
		t.Errorf("opened again: %+v as process %d, want %+v as %d", again, b.process.cmd.Process.Pid, first, pid)
	}

	t.Run("page", func(t *testing.T) {
		resp, body := get(t, unixClient(t, startBroker(t, dir)), strings.TrimPrefix(first.Path, Prefix))
		if resp.StatusCode != 200 || !strings.Contains(body, "./font-roboto/") ||
			strings.Contains(body, "url(/font-roboto/") {
			t.Errorf("the page: %d, %d bytes, fonts not relative", resp.StatusCode, len(body))
		}
		if p := resp.Header.Get("Content-Security-Policy"); !strings.HasSuffix(p, "; frame-ancestors 'self'") {
			t.Errorf("policy %q", p)
		}
		checkHardened(t, "the page", resp)
		resp, _ = get(t, unixClient(t, startBroker(t, dir)), strings.TrimPrefix(first.Path, Prefix)+
			"data/plugin/scalars/tags")
		if p := resp.Header.Get("Content-Security-Policy"); resp.StatusCode != 200 || !strings.HasPrefix(p, "sandbox; ") {
			t.Errorf("data of a plugin: %d, policy %q", resp.StatusCode, p)
		}
	})
	t.Run("killed", func(t *testing.T) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		<-b.process.done
		if resp, body := get(t, unixClient(t, startBroker(t, dir)),
			strings.TrimPrefix(first.Path, Prefix)); resp.StatusCode != 502 {
			t.Errorf("while it is dead: %d %q", resp.StatusCode, body)
		}
		if again := open(t, b, logs); again != first {
			t.Errorf("after it was killed: %+v, want %+v", again, first)
		}
		if got := logdirShown(t, dir, first); got != logs {
			t.Errorf("TensorBoard shows %q, want %q", got, logs)
		}
	})
	t.Run("another folder", func(t *testing.T) {
		other := t.TempDir()
		a := open(t, b, other)
		if got := logdirShown(t, dir, a); got != other || a.Path != first.Path {
			t.Errorf("TensorBoard shows %q at %s, want %q at %s", got, a.Path, other, first.Path)
		}
	})
}

func TestOpenSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "python")
	executable.Write(t, broken, "#!/bin/sh\necho 'No module named tensorboard' >&2\nexit 1\n")
	for name, in := range map[string]struct{ python, want string }{
		"no Python known":     {"", "pip install tensorboard"},
		"no such Python":      {"/no/such/python", "/no/such/python"},
		"a Python without it": {broken, "the process ended: No module named tensorboard; \"pip install tensorboard"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newBoard(t, in.python)
			if _, err := b.Open(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), in.want) {
				t.Errorf("Open: %v, want an error with %q", err, in.want)
			}
		})
	}
}

// TestCallerThatLeaves: a start that is slower than its caller's patience goes on, and the next caller finds it.
func TestCallerThatLeaves(t *testing.T) {
	t.Parallel()
	slow := filepath.Join(t.TempDir(), "python")
	executable.Write(t, slow, "#!/bin/sh\nsleep 0.3\necho\nexec sleep 600\n")
	b, _ := newBoard(t, slow)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	logs := t.TempDir()
	if _, err := b.Open(ctx, logs); err != nil {
		t.Fatal(err)
	}
	pid := b.process.cmd.Process.Pid
	if open(t, b, logs); b.process.cmd.Process.Pid != pid {
		t.Error("the second caller started another")
	}
}

// TestCloseWhileStarting: whoever releases the cluster does not wait for TensorBoard.
func TestCloseWhileStarting(t *testing.T) {
	t.Parallel()
	silent := filepath.Join(t.TempDir(), "python")
	executable.Write(t, silent, "#!/bin/sh\nexec sleep 600\n")
	b, dir := newBoard(t, silent)
	opened := make(chan error, 1)
	go func() {
		_, err := b.Open(t.Context(), dir)
		opened <- err
	}()
	eventually(t, "it is starting", func() bool { _, err := os.Stat(b.log); return err == nil })
	if err := b.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-opened; !errors.Is(err, errClosed) {
		t.Errorf("Open: %v, want %v", err, errClosed)
	}
}

// TestWorkingDirectoryIsNoLibrary: a file beside the notebook that is named as a module
// is not imported in its stead.
func TestWorkingDirectoryIsNoLibrary(t *testing.T) {
	python := findTensorBoard(t)
	dir := t.TempDir()
	for _, name := range []string{"tensorboard.py", "random.py"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("raise SystemExit('not this one')\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	b, _ := newBoard(t, python)
	open(t, b, dir)
}

// TestBoardOwner is not a test: it is the process that TestEndsWithItsOwner kills.
func TestBoardOwner(t *testing.T) {
	dir := os.Getenv("TFCLUSTER_TEST_BOARD_OWNER")
	if dir == "" {
		t.Skip("runs as a process of TestEndsWithItsOwner")
	}
	b := New("brave-otter", findTensorBoard(t), dir, filepath.Join(dir, "log"), nil)
	if _, err := b.Open(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	fmt.Println("open", b.process.cmd.Process.Pid)
	time.Sleep(time.Hour)
}

func TestEndsWithItsOwner(t *testing.T) {
	t.Parallel()
	python := findTensorBoard(t)
	dir := socketDir(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBoardOwner$", "-test.v")
	cmd.Env = append(os.Environ(), "TFCLUSTER_TEST_BOARD_OWNER="+dir, "TFCLUSTER_TEST_TENSORBOARD_PYTHON="+python)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	lines := bufio.NewScanner(out)
	for pid == 0 && lines.Scan() {
		_, _ = fmt.Sscanf(lines.Text(), "open %d", &pid) // other lines are the test's
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // killed
	if pid == 0 {
		t.Fatal("the owner did not open its board")
	}
	eventually(t, "TensorBoard ends with its owner", func() bool { return len(processesOf(dir)) == 0 })
}

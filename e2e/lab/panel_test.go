package lab

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// panel is the panel in the side bar.
const panel = "#tfcluster-panel"

// frontEnd is one in which the panel is tested.
type frontEnd struct {
	name  string
	start func(t testing.TB, prefix string) *Server
	own   func(line string) bool // errors in its console that it has without this project, too
	again []string               // after the page is loaded again: the panel is not part of Notebook 7's layout
}

func frontEnds() []frontEnd {
	return []frontEnd{
		{"JupyterLab", func(t testing.TB, prefix string) *Server {
			return Start(t, prefix)
		}, func(string) bool { return false }, nil},
		{
			"Notebook 7", StartNotebook,
			func(line string) bool {
				return line == "TypeError: Cannot read properties of undefined (reading 'schema')"
			},
			[]string{"command:tfcluster:open-panel"},
		},
	}
}

// inFrontEnds does inFrontEnd in each of them.
func inFrontEnds(t *testing.T, cells func(t *testing.T, s *Server) []string,
	steps func(f frontEnd, s *Server) []string,
) {
	t.Helper()
	for _, f := range frontEnds() {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			inFrontEnd(t, f, cells, steps)
		})
	}
}

// inFrontEnd starts a front end with a notebook, whose steps show the panel, and checks what may never be: a request
// that fails, an error in the console, and a secret in the saved notebook. The last cell releases the cluster.
func inFrontEnd(t *testing.T, f frontEnd, cells func(t *testing.T, s *Server) []string,
	steps func(f frontEnd, s *Server) []string,
) {
	t.Helper()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, Notebook 7 and browsers")
	}
	s := f.start(t, install(t))
	all := cells(t, s)
	nb := s.WriteNotebook(t, "panel.ipynb", "tfcluster", all...)
	given := append([]string{"size:1500x1000", "command:tfcluster:open-panel", "page-text:" + panel + "=No cluster"},
		steps(f, s)...)
	given = append(given, "focus:panel.ipynb", run(len(all)-1), "idle", "page-text:"+panel+"=No cluster|released", "save")
	checkPanel(t, f, s.RunNotebook(t, nb, given...))
	s.checkNoSecrets(t, nb)
	if slices.ContainsFunc(given, func(step string) bool { return strings.HasPrefix(step, "download:") }) {
		checkDownload(t)
	}
}

// restarting are errors that JupyterLab reports when a kernel is restarted while messages of its comms or of its
// debugger are on their way.
var restarting = []string{"Could not restore the debugger state", "Comm not found for comm id"}

func checkPanel(t *testing.T, f frontEnd, r Result) {
	t.Helper()
	var ours []string
	for _, line := range r.Console {
		known := f.own(line)
		for _, prefix := range restarting {
			known = known || strings.HasPrefix(line, prefix)
		}
		if !known {
			ours = append(ours, line)
		}
	}
	if len(r.Failed) > 0 || len(ours) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, ours)
	}
}

// shows waits until the panel shows a text.
func shows(re string) string { return "page-text:" + panel + "=" + re }

// clicks clicks a button of the panel.
func clicks(label string) string { return "page-click:" + panel + " button:text('" + label + "')" }

// panelProgram trains slowly, with a straggler on worker 1, and writes lines. With the word --die worker 1 is killed at
// step 20, with --lose an agent is killed, which find of the constant pause finds.
const panelProgram = `def main_fun(args, ctx):
    import os, signal, time
    for step in range(1, 600):
        slow = ctx.task_index == 1
        ctx.report(step=step // 4 if slow else step, loss=1 / step, accuracy=1 - 1 / step)
        if step % 10 == 0:
            print(f"step {step} of {ctx.task_index}", flush=True)
        if slow and step == 20 and "--die" in args:
            os.kill(os.getpid(), signal.SIGKILL)
        if slow and step == 20 and "--lose" in args:
            os.kill(max(find(b"\0agent\0")), signal.SIGKILL)
        time.sleep(0.1)`

// pause stops the youngest of three agents, but for moments in which it tells that it is there, and lets it go on when
// the file "go" is there: until then the reservation misses one executor.
const pause = `import json, os, pathlib, signal, subprocess, threading, time

def find(word):
    home = f"HOME={os.environ['HOME']}".encode()
    found = []
    for p in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if word in (p / "cmdline").read_bytes() and home in (p / "environ").read_bytes():
                found.append(int(p.name))
        except OSError:
            pass  # it has ended, or is another user's
    return found

def ready():
    status = subprocess.run([os.environ["TFCLUSTER_BINARY"], "status", "--json"], capture_output=True, text=True).stdout
    return sum(e["state"] == "ready" for e in json.loads(status or "{}").get("executors", ()))

def hold():
    while len(find(b"\0agent\0")) < 3 or not find(b"tfcluster.zygote"):
        time.sleep(0.01)
    agent = max(find(b"\0agent\0"))
    os.kill(agent, signal.SIGSTOP)
    while ready() < 2:
        os.kill(agent, signal.SIGCONT)
        time.sleep(0.02)
        os.kill(agent, signal.SIGSTOP)
        for _ in range(4):
            time.sleep(0.5)
            if ready() == 2:
                break
    until = time.monotonic() + 150
    while not os.path.exists("go") and time.monotonic() < until:
        time.sleep(0.05)
    os.kill(agent, signal.SIGCONT)

threading.Thread(target=hold, daemon=True).start()`

// TestPanel: a reservation with a missing executor, training with a straggler, curves, a reset while a cell is busy, a
// killed worker, a lost executor, the dark theme, the page loaded again, a restarted kernel.
func TestPanel(t *testing.T) {
	t.Parallel()
	inFrontEnds(t, func(t *testing.T, s *Server) []string {
		return []string{
			pause, "%tfcluster reserve --workers 3 --python " + slowPython(t, s), panelProgram, "%tfcluster start main_fun",
			"%tfcluster wait", "%tfcluster start main_fun --die", "%tfcluster wait", "%tfcluster start main_fun --lose",
			"%tfcluster wait", "%tfcluster shutdown",
		}
	}, func(f frontEnd, s *Server) []string {
		steps := []string{
			"shot:none", run(0), run(1), shows("2 of 3 executors are ready; missing worker:"), "shot:reservation",
			"touch:" + filepath.Join(s.Root, "go"), "idle", shows("No run yet"), run(2), run(3), run(4),
			shows(`steps behind[^]*steps/s[^]*worker:1`), shows(`\d+ steps behind`), shows(`CPU \d+ %`), "shot:straggler",
			"command:tfcluster:open-curves", "page-text:.tfcluster-curves=loss[^]*accuracy[^]*Memory", "shot:curves",
			clicks("Reset"), "page-text:.jp-Dialog=Run 1 is active and will be ended", "shot:question",
			"page-click:.jp-Dialog .jp-mod-accept", shows("stopped after"), "page-text:.tfcluster-runs=stopped after",
			"shot:reset", "focus:panel.ipynb", "idle", run(5), run(6), shows("killed by signal 9"), "idle", "shot:killed",
			run(7), run(8), shows("executor lost: its agent was killed"), "idle", "shot:lost",
			shows(`Executors[^]*worker:0\s+ready[^]*worker:1\s+ready[^]*worker:2\s+ready`), "shot:replaced",
			"theme:JupyterLab Dark", "shot:dark", "focus:panel.ipynb", "save", "reload",
		}
		steps = append(steps, f.again...)
		if f.again == nil {
			steps = append(steps, "page-text:.tfcluster-curves=loss")
		}
		return append(steps, shows("Run 3: main_fun[^]*failed after"), "shot:reloaded", "restart",
			shows("Run 3: main_fun[^]*failed after"), "shot:restarted")
	})
}

// TestPanelBesideIPykernel shows the panel beside a plain ipykernel, before and after it loads tfcluster, and opens a
// notebook with the kernel by its button.
func TestPanelBesideIPykernel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	prefix := install(t)
	s := Start(t, prefix, "TFCLUSTER_BINARY="+clustertest.Program(t), "PYTHONPATH="+
		filepath.Join(repository(t), "cluster", "python"))
	nb := s.WriteNotebook(t, "plain.ipynb", "python3", "%load_ext tfcluster",
		"%tfcluster reserve --workers 2 --framework none", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "command:tfcluster:open-panel", shows("has no tfcluster"), "shot:none", run(0), "idle",
		shows("No cluster"), run(1), "idle", shows(`\nready\n[^]*worker:1`), "shot:plain", run(2), "idle",
		shows("No cluster|released"))
	checkPanel(t, frontEnds()[0], r)
	other := s.WriteNotebook(t, "other.ipynb", "python3", "1 + 1")
	r = s.RunNotebook(t, other, "command:tfcluster:open-panel", shows("has no tfcluster"),
		clicks("New notebook with TFCluster"), "page-text:.jp-NotebookPanel-toolbar=Python 3 \\(TFCluster\\)",
		shows("No cluster"), "shot:made")
	checkPanel(t, frontEnds()[0], r)
}

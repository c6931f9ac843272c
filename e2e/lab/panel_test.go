package lab

import (
	"path/filepath"
	"strings"
	"testing"
)

// panelProgram trains slowly, with a straggler on worker 1, and writes lines. With the word --fail worker 1 fails.
const panelProgram = `def main_fun(args, ctx):
    import sys, time
    for step in range(1, 600):
        slow = ctx.task_index == 1
        ctx.report(step=step // 4 if slow else step, loss=1 / step, accuracy=1 - 1 / step)
        if step % 10 == 0:
            print(f"step {step} of {ctx.task_index} <img src=x onerror=alert(1)>", flush=True)
        if "--fail" in args and slow and step == 20:
            sys.exit("no such label <script>alert(2)</script>")
        time.sleep(0.1)`

// TestPanel shows a cluster's panel: none, a reservation, training with a straggler, lines and a search, curves, a
// reset while a cell is busy, a failed task, the dark theme and the page loaded again.
func TestPanel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	s := Start(t, install(t))
	nb := s.WriteNotebook(t, "panel.ipynb", "tfcluster", "%tfcluster reserve --workers 3 --framework none", panelProgram,
		"%tfcluster start main_fun", "%tfcluster wait", "%tfcluster start main_fun --fail", "%tfcluster wait", "%tfcluster shutdown")
	const panel = "#tfcluster-panel"
	r := s.RunNotebook(t, nb, "size:1500x1000", "command:tfcluster:open-panel", "page-text:"+panel+"=No cluster", "shot:none",
		"run:0", "idle", "page-text:"+panel+"=No run yet", "run:1", "run:2", "idle", "run:3", "page-text:"+panel+"=steps behind", "shot:straggler",
		"command:tfcluster:open-logs", "page-text:.tfcluster-lines=step 40 of 0", "shot:lines",
		"page-type:.tfcluster-logbar input=step 20", "page-text:.tfcluster-lines=^(?![^]*step 40)[^]*step 20 of 1", "shot:search",
		"command:tfcluster:open-curves", "page-text:.tfcluster-curves=loss", "page-text:.tfcluster-curves=accuracy", "shot:curves",
		"page-click:"+panel+" button:text('Reset')", "page-click:.jp-Dialog .jp-mod-accept", "page-text:"+panel+"=stopped after", "shot:reset",
		"focus:panel.ipynb", "idle", "run:4", "idle", "run:5", "page-text:"+panel+"=exited, code 1", "shot:failed",
		"theme:JupyterLab Dark", "shot:dark", "save", "reload", "page-text:"+panel+"=exited, code 1", "page-text:.tfcluster-curves=loss", "shot:reloaded",
		"run:6", "idle", "page-text:"+panel+"=No cluster|released", "shot:released")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	for _, secret := range []string{"tfcluster/", "127.0.0.1:"} {
		for _, c := range r.Cells {
			for _, o := range c.Outputs {
				if strings.Contains(string(o.Text), secret) {
					t.Errorf("the notebook holds %q: %s", secret, o.Text)
				}
			}
		}
	}
}

// TestPanelInOtherFrontEnds shows the panel in Notebook 7, and beside a plain ipykernel, before and after it loads
// tfcluster.
func TestPanelInOtherFrontEnds(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	const panel = "#tfcluster-panel"
	t.Run("Notebook 7", func(t *testing.T) {
		t.Parallel()
		s := StartNotebook(t, install(t))
		nb := s.WriteNotebook(t, "seven.ipynb", "tfcluster", "%tfcluster reserve --workers 2 --framework none", "%tfcluster shutdown")
		r := s.RunNotebook(t, nb, "command:tfcluster:open-panel", "page-text:"+panel+"=No cluster", "run:0", "idle",
			"page-text:"+panel+"=\nready\n[^]*worker:1", "shot:notebook7", "run:1", "idle", "page-text:"+panel+"=No cluster|released")
		checkRequests(t, r, s.RunNotebook(t, s.WriteNotebook(t, "plain.ipynb", "python3", "1 + 1"), "run:0", "idle").Console)
	})
	t.Run("ipykernel", func(t *testing.T) {
		t.Parallel()
		prefix := install(t)
		s := Start(t, prefix, "TFCLUSTER_BINARY="+filepath.Join(prefix, "tfcluster"), "PYTHONPATH="+filepath.Join(repository(t), "cluster", "python"))
		nb := s.WriteNotebook(t, "plain.ipynb", "python3", "%load_ext tfcluster", "%tfcluster reserve --workers 2 --framework none", "%tfcluster shutdown")
		r := s.RunNotebook(t, nb, "command:tfcluster:open-panel", "page-text:"+panel+"=has no tfcluster", "shot:none", "run:0", "idle",
			"page-text:"+panel+"=No cluster", "run:1", "idle", "page-text:"+panel+"=\nready\n[^]*worker:1", "shot:plain",
			"run:2", "idle", "page-text:"+panel+"=No cluster|released")
		if len(r.Failed) > 0 || len(r.Console) > 0 {
			t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
		}
	})
}

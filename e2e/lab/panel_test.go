package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
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

// slowPython starts so late that the panel shows what a reservation waits for.
const slowPython = "#!/bin/sh\nsleep 6\nexec %s \"$@\"\n"

// curveProgram has a curve that depends on its argument.
const curveProgram = `def main_fun(args, ctx):
    for step in range(1, 31):
        ctx.report(step=step, loss=float(args[0]) / step)`

// manyLines prints 100,000 lines, one of which a search finds.
const manyLines = `def many(args, ctx):
    for i in range(50_000):
        print("line", i, "Needle" if i == 31_415 and ctx.task_index == 1 else "")`

// TestPanelAtWork shows a reservation that waits for its executors, three runs compared, a search in 100,000 lines and
// the lines around what it finds, TensorBoard in a tab, a restarted kernel, and buttons pressed with the keyboard alone.
func TestPanelAtWork(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab, TensorFlow, TensorBoard and a browser")
	}
	s := Start(t, install(t))
	python := filepath.Join(repository(t), ".venv", "bin", "python")
	slow := filepath.Join(s.Root, "slow-python")
	if err := os.WriteFile(slow, []byte(strings.Replace(slowPython, "%s", python, 1)), 0o755); err != nil {
		t.Fatal(err)
	}
	const panel = "#tfcluster-panel"
	nb := s.WriteNotebook(t, "work.ipynb", "tfcluster", "%tfcluster reserve --workers 2 --python "+slow,
		curveProgram, "%tfcluster start --wait main_fun 1.0", "%tfcluster start --wait main_fun 0.5", "%tfcluster start --wait main_fun 0.25",
		manyLines, "%tfcluster start --wait many", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "size:1500x1000", "command:tfcluster:open-panel", "run:0", "page-text:"+panel+"=waiting: 0 of 2", "shot:reservation",
		"idle", "run:1", "run:2", "run:3", "run:4", "idle", "page-text:"+panel+"=Run 3[^]*finished after",
		"focus-on:"+panel+" button:text('TensorBoard')", "press:Tab", "press:Enter", "page-text:.tfcluster-curves=3 main_fun",
		"page-click:.tfcluster-runs label:nth-of-type(2) input", "page-click:.tfcluster-runs label:nth-of-type(3) input",
		"page-text:.tfcluster-curves .u-legend=run 1[^]*run 2[^]*run 3", "shot:compared",
		"focus:work.ipynb", "run:5", "run:6", "idle", "command:tfcluster:open-logs", "page-text:.tfcluster-lines=line 49999",
		"page-type:.tfcluster-logbar input=needle", "page-text:.tfcluster-lines=^\\[worker:1\\] line 31415 Needle\\s*$", "shot:found",
		"page-click:.tfcluster-lines .tfcluster-link", "page-text:.tfcluster-lines=line 31400[^]*Needle[^]*line 31420", "shot:around",
		"page-click:"+panel+" button:text('TensorBoard')", "page-frame:.tfcluster-board-page iframe=tb-webapp", "shot:board",
		"focus:work.ipynb", "restart", "page-text:"+panel+"=Run 4: many[^]*finished", "run:7", "idle", "page-text:"+panel+"=No cluster|released")
	// JupyterLab says both when a kernel is restarted while messages of its comms or its debugger are on their way.
	console := slices.DeleteFunc(r.Console, func(line string) bool {
		return strings.HasPrefix(line, "Could not restore the debugger state") || strings.HasPrefix(line, "Comm not found for comm id")
	})
	if len(r.Failed) > 0 || len(console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, console)
	}
}

// hostileTexts would change the page if they were taken as HTML, a URL, a template or a property's name.
func hostileTexts() []string {
	texts := []string{
		`<script>alert(1)</script>`, `<img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`,
		`<iframe srcdoc="<script>parent.alert(1)</script>">`, `<iframe src=javascript:alert(1)>`, `<a href="javascript:alert(1)">x</a>`, `javascript:alert(1)`,
		`<button data-commandlinker-command="tfcluster:shutdown">x</button>`, `<div data-commandlinker-command="tfcluster:reset" data-commandlinker-args="{}">x</div>`,
		`<form id=parentNode><input name=children></form>`, `<img name=getElementById>`, `<a id=jupyterapp></a>`, `<base href="https://example.org/">`,
		`<link rel=stylesheet href=data:text/css,*{display:none}>`, `<style>*{display:none}</style>`, `<meta http-equiv=refresh content="0;url=about:blank">`,
		`<object data=javascript:alert(1)>`, `<embed src=javascript:alert(1)>`, `<video><source onerror=alert(1)></video>`, `<audio src=x onerror=alert(1)>`,
		`<details open ontoggle=alert(1)>`, `<marquee onstart=alert(1)>`, `<input autofocus onfocus=alert(1)>`, `<select autofocus onfocus=alert(1)>`,
		`<textarea autofocus onfocus=alert(1)>`, `</textarea><script>alert(1)</script>`, `</title><script>alert(1)</script>`, `</style><script>alert(1)</script>`,
		`<!--`, `-->`, `<![CDATA[x]]>`, `<?xml version="1.0"?>`, `&lt;script&gt;alert(1)&lt;/script&gt;`, `&#60;script&#62;`, `<math><mtext></form><form><mglyph><style></math><img src onerror=alert(1)>`,
		`{{constructor.constructor('alert(1)')()}}`, `${alert(1)}`, `#{alert(1)}`, `<%= alert(1) %>`, "`alert(1)`", `{% raw %}`, `$\href{javascript:alert(1)}{x}$`,
		`[x](javascript:alert(1))`, `![x](x"onerror="alert(1))`, `__proto__`, `constructor`, `prototype`, `toString`, `hasOwnProperty`, `valueOf`, `then`,
		"\u202eabc\u202c", "\u2066x\u2069", "\u200b", "\ufeff", "e\u0301\u0301\u0301", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x1b[2J\x1b[H", "a\bb", "\r\rx", "a\tb",
		strings.Repeat("x", 5000), strings.Repeat("<b>", 200), `../../../etc/passwd`, `C:\windows`, `%00`, `null`, `undefined`, `NaN`, `-1e999`, `' OR 1=1 --`, `;rm -rf /`, "|cat",
	}
	return texts
}

// hostileProgram prints each text, reports a metric of its name, and ends with some of them.
const hostileProgram = `def main_fun(args, ctx):
    import json, pathlib, sys
    texts = json.loads(pathlib.Path(args[0]).read_text())
    for step, text in enumerate(texts, 1):
        print(text, flush=True)
        ctx.report(step=step, **{text: step})
    sys.exit("\n".join(texts[:20]))`

// TestPanelShowsHostileTexts: lines, metrics and failures are text, whatever they hold.
func TestPanelShowsHostileTexts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	texts := hostileTexts()
	if len(texts) < 60 {
		t.Fatalf("%d texts", len(texts))
	}
	s := Start(t, install(t))
	b, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(s.Root, "texts.json")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	const panel = "#tfcluster-panel"
	nb := s.WriteNotebook(t, "hostile.ipynb", "tfcluster", "%tfcluster reserve --workers 2 --framework none", hostileProgram,
		"%tfcluster start main_fun "+file, "%tfcluster wait", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "size:1500x1000", "command:tfcluster:open-panel", "run:0", "run:1", "run:2", "run:3", "idle",
		`text:\$\\href\{javascript:alert`, "page-text:"+panel+"=exited, code 1", "only:"+panel+"=div p h3 section label select option button table thead tbody tr th td pre progress ul li",
		"command:tfcluster:open-logs", "page-text:.tfcluster-lines=onload=alert", "only:.tfcluster-lines=div button", "shot:lines",
		"command:tfcluster:open-curves", "page-text:.tfcluster-curves=onload=alert",
		"only:.tfcluster-curves=div p h3 fieldset legend label input canvas table tbody tr th td", "shot:curves",
		"focus:hostile.ipynb", "run:4", "idle")
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
}

package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// run runs a cell.
func run(n int) string { return fmt.Sprint("run:", n) }

// slowPython writes an interpreter that starts so late that the panel shows what a reservation waits for.
func slowPython(t *testing.T, s *Server) string {
	t.Helper()
	path := filepath.Join(s.Root, "slow-python")
	script := "#!/bin/sh\nsleep 3\nexec " + filepath.Join(repository(t), ".venv", "bin", "python") + " \"$@\"\n"
	executable.Write(t, path, script)
	return path
}

// checkNoSecrets fails the test if a saved notebook contains a token, or an address at which somebody
// could ask for something.
func (s *Server) checkNoSecrets(t *testing.T, name string) {
	t.Helper()
	s.checkNoToken(t, name)
	saved, err := os.ReadFile(filepath.Join(s.Root, name))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(saved, []byte(s.token)) {
		t.Errorf("%s contains the token of Jupyter", name)
	}
	address := regexp.MustCompile(`(\b\d{1,3}(\.\d{1,3}){3}|\[::1?\]|\blocalhost|\b` + regexp.QuoteMeta(host) + `):\d+`)
	if m := address.Find(saved); m != nil {
		t.Errorf("%s contains the address %s", name, m)
	}
	var nb struct {
		Cells []struct{ Outputs []Output }
	}
	if err := json.Unmarshal(saved, &nb); err != nil {
		t.Fatal(err)
	}
	for _, c := range nb.Cells {
		for _, o := range c.Outputs {
			for kind, data := range o.Data {
				if strings.HasPrefix(kind, "application/vnd.tfcluster") && !ownData.Match(data) {
					t.Errorf("%s contains the output %s", name, data)
				}
			}
		}
	}
}

// ownData is an output of this project: the opaque ID of a board, and curves as images.
var ownData = regexp.MustCompile(`^\s*\{\s*("curves":\s*\[[^\]]*\],\s*)?"id":\s*"[0-9a-f]{32}"\s*\}\s*$`)

// curveProgram has a curve that depends on its argument.
const curveProgram = `def main_fun(args, ctx):
    import time
    for step in range(1, 31):
        ctx.report(step=step, loss=float(args[0]) / step)
        time.sleep(0.04)`

// manyLines prints 100,000 lines, one of which a search finds.
const manyLines = `def many(args, ctx):
    for i in range(50_000):
        print("line", i, "Needle" if i == 31_415 and ctx.task_index == 1 else "")`

// checkDownload: what the browser has downloaded are all lines of manyLines.
func checkDownload(t *testing.T) {
	t.Helper()
	saved, err := os.ReadFile(filepath.Join(t.ArtifactDir(), "download"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(saved, []byte("\n")); n != 100_000 || bytes.Count(saved, []byte("line 31415 Needle\n")) != 1 {
		t.Errorf("the download has %d lines, want 100000 with one Needle: %.200q …", n, saved)
	}
}

// TestPanelAtWork: three runs compared, a search in 100,000 lines, the lines around what it finds, all of them
// downloaded, TensorBoard in a tab and in a cell, a restarted kernel.
func TestPanelAtWork(t *testing.T) {
	t.Parallel()
	inFrontEnds(t, func(*testing.T, *Server) []string {
		return []string{
			"%tfcluster reserve --workers 2", curveProgram, "%tfcluster start --wait main_fun 1.0",
			"%tfcluster start --wait main_fun 0.5", "%tfcluster start --wait main_fun 0.25", manyLines,
			"%tfcluster start --wait many", "%tfcluster tensorboard", "%tfcluster shutdown",
		}
	}, func(frontEnd, *Server) []string {
		return []string{
			run(0), run(1), run(2), run(3), run(4), "idle", shows("Run 3[^]*finished after"), clicks("Curves"),
			"page-text:.tfcluster-curves=3 main_fun", "page-click:.tfcluster-runs label:nth-of-type(2) input",
			"page-click:.tfcluster-runs label:nth-of-type(3) input",
			"page-text:.tfcluster-curves .u-legend=run 1[^]*run 2[^]*run 3", "shot:compared", "focus:panel.ipynb", run(5),
			run(6), "idle", "command:tfcluster:open-logs", "page-seen:.tfcluster-line=line 49999", "shot:lines",
			"page-type:.tfcluster-logbar input=needle", `page-text:.tfcluster-lines=^\[worker:1\] line 31415 Needle\s*$`,
			"shot:found", "page-click:.tfcluster-lines .tfcluster-link",
			"page-text:.tfcluster-lines=line 31400[^]*Needle[^]*line 31420", "page-seen:.tfcluster-marked=Needle", "shot:around",
			"choose:.tfcluster-logbar select=", "download:.tfcluster-logbar button:text('Download')", clicks("TensorBoard"),
			"page-frame:.tfcluster-board-page iframe=scalar-card svg", "shot:board", "focus:panel.ipynb", run(7), "idle",
			"frame:scalar-card svg", "shot:cell", "restart", shows("Run 4: many[^]*finished"),
		}
	})
}

// TestPanelByKeyboard reads lines, and ends a run and the cluster, with the keyboard alone.
func TestPanelByKeyboard(t *testing.T) {
	t.Parallel()
	palette := func(command string) []string {
		return []string{
			"press:Control+Shift+C", "page-seen:.lm-CommandPalette-input=", "type:" +
				command, "page-seen:.lm-mod-active .lm-CommandPalette-itemLabel=" + command, "press:Enter",
		}
	}
	inFrontEnds(t, func(*testing.T, *Server) []string {
		return []string{
			"%tfcluster reserve --workers 2 --framework none", panelProgram, "%tfcluster start main_fun", "%tfcluster wait",
			"%tfcluster shutdown",
		}
	}, func(frontEnd, *Server) []string {
		steps := []string{
			"command:notebook:enter-command-mode", "press:Shift+Enter", "press:Shift+Enter", "press:Shift+Enter",
			"press:Shift+Enter", shows("running for"),
		}
		steps = append(steps, palette("Show the cluster panel")...)
		steps = append(steps, "tab-to:^Logs$", "shot:focus", "press:Enter", "page-text:.tfcluster-lines=step 30",
			"type:step 20", "page-text:.tfcluster-lines=^(?![^]*step 30)[^]*step 20 of 1", `tab-to:^\[worker:1\]$`,
			"press:Enter", "page-seen:.tfcluster-marked=step 20 of 1", "shot:around")
		steps = append(steps, palette("Show the cluster panel")...)
		steps = append(steps, "tab-to:^Reset$", "press:Enter", "page-seen:.jp-Dialog=Run 1 is active", "tab-to:^Reset$",
			"shot:question", "press:Enter", shows("stopped after"), "focus:panel.ipynb", "idle")
		steps = append(steps, palette("Shut the cluster down")...)
		return append(steps, "page-seen:.jp-Dialog=Its executors are released", "tab-to:^Shut down$", "press:Enter",
			shows("No cluster|released"), "shot:released")
	})
}

// hostileTexts would change the page if they were taken as HTML, a URL, a template or a property's name. The
// extension's own tests have the same ones in every field of a state.
func hostileTexts(t *testing.T) (file string) {
	t.Helper()
	file = filepath.Join(repository(t), "jupyter-ext", "testdata", "hostile.json")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil || len(texts) < 60 {
		t.Fatalf("%d hostile texts, %v", len(texts), err)
	}
	return file
}

// hostileProgram prints each text, reports a metric of its name, and ends with some of them, on worker 0.
const hostileProgram = `def main_fun(args, ctx):
    import json, pathlib, sys, time
    if ctx.task_index == 1:
        time.sleep(600)
    texts = json.loads(pathlib.Path(args[0]).read_text())
    for step, text in enumerate(texts, 1):
        print(text, flush=True)
        ctx.report(step=step, **{text: step})
    sys.exit("\n".join(texts[:20]))`

// hostileName is that of a program.
const hostileName = `<img src=x onerror=alert(1)>.py`

// TestPanelShowsHostileTexts: names, lines, metrics and failures are text, whatever they hold. What shows them is the
// same in each front end.
func TestPanelShowsHostileTexts(t *testing.T) {
	t.Parallel()
	inFrontEnd(t, frontEnds()[0], func(t *testing.T, s *Server) []string {
		if err := os.WriteFile(filepath.Join(s.Root, hostileName), []byte("print('ran')"), 0o600); err != nil {
			t.Fatal(err)
		}
		return []string{
			"%tfcluster reserve --workers 2 --framework none", "%tfcluster start --wait './" + hostileName + "'", hostileProgram,
			"%tfcluster start main_fun " + hostileTexts(t), "%tfcluster wait", "%tfcluster shutdown",
		}
	}, func(frontEnd, *Server) []string {
		return []string{
			run(0), run(1), "idle", shows("Run 1: <img src=x onerror"), "shot:name", run(2), run(3), run(4), "idle",
			`text:\$\\href\{javascript:alert`, shows("exited, code 1"),
			"only:" + panel + "=div p h3 section label select option button table thead tbody tr th td pre progress ul li",
			"command:tfcluster:open-logs", "page-text:.tfcluster-lines=onload=alert", "only:.tfcluster-lines=div button",
			"page-seen:.tfcluster-line:last-child=", "shot:lines", "command:tfcluster:open-curves",
			"page-text:.tfcluster-curves=onload=alert", "page-text:.tfcluster-runs=<img src=x onerror",
			"only:.tfcluster-curves=div p h3 fieldset legend label input canvas table tbody tr th td", "shot:curves",
		}
	})
}

// busyProgram reports 20 steps and writes 50 lines a second.
const busyProgram = `def main_fun(args, ctx):
    import time
    for step in range(1, 1_000_000):
        ctx.report(step=step, loss=1 / step)
        print(f"line {step}", "x" * 80, flush=True)
        print(f"and {step}" * (step % 2), flush=True)
        time.sleep(0.05)`

// TestPanelForLong: minutes of training with the panel, lines and curves open beside a cell that waits: the Jupyter
// server drops no message, and what is shown is new. TFCLUSTER_TEST_PANEL_SECONDS says how long; make
// test-long has five minutes.
func TestPanelForLong(t *testing.T) {
	t.Parallel()
	seconds := os.Getenv("TFCLUSTER_TEST_PANEL_SECONDS")
	if seconds == "" {
		t.Skip("long: TFCLUSTER_TEST_PANEL_SECONDS=300, in make test-long")
	}
	f := frontEnds()[0]
	s := f.start(t, install(t))
	nb := s.WriteNotebook(t, "long.ipynb", "tfcluster", "%tfcluster reserve --workers 4 --framework none", busyProgram,
		"%tfcluster start main_fun", "%tfcluster wait", "%tfcluster shutdown")
	r := s.RunNotebook(t, nb, "size:1500x1000", "command:tfcluster:open-panel", run(0), run(1), run(2), run(3),
		shows("running for"), "command:tfcluster:open-curves", "command:tfcluster:open-logs",
		"page-text:.tfcluster-lines=line 100", "wait:"+seconds, "shot:long",
		"page-type:.tfcluster-logbar input=the run is over", clicks("Stop"), "page-click:.jp-Dialog .jp-mod-accept",
		shows("stopped after"), "focus:long.ipynb", "idle", run(4), "idle", shows("No cluster|released"))
	checkPanel(t, f, r)
	for _, limit := range []string{"message rate exceeded", "data rate exceeded"} {
		if strings.Contains(s.Log(), limit) || strings.Contains(r.Text, limit) {
			t.Errorf("Jupyter's %s:\n%s", limit, s.Log())
		}
	}
}

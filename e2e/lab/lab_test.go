package lab

import (
	"strings"
	"testing"
)

// TestPlainKernel uses ipykernel: if it fails, the cause is in this package or in JupyterLab.
func TestPlainKernel(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	s := Start(t, "")
	nb := s.WriteNotebook(t, "plain.ipynb", "python3",
		"from IPython.display import HTML\nx = 41\nHTML('<b id=shown>seen in a cell</b>')",
		"x + 1",
		"import time\nprint('sleeping')\nwhile True: time.sleep(0.1)")
	r := s.RunNotebook(t, nb, "run:0", "run:1", "idle", "shot:run", "run:2", "text:sleeping", "stop", "idle",
		"text:KeyboardInterrupt", "restart", "run:1", "text:NameError", "shot:restarted")
	if !strings.Contains(r.Text, "seen in a cell") {
		t.Errorf("the notebook shows:\n%s", r.Text)
	}
	if len(r.Cells) != 3 || r.Cells[0].Outputs[0].Data["text/html"] == nil || r.Cells[1].Outputs[0].EName != "NameError" {
		t.Errorf("cells: %+v", r.Cells)
	}
	if len(r.Failed) > 0 || len(r.Console) > 0 {
		t.Errorf("failed requests %v, console %q", r.Failed, r.Console)
	}
	if strings.Contains(s.Log()+strings.Join(r.Shots, ""), s.token) {
		t.Error("the token is in the log or in the screenshots' names")
	}
}

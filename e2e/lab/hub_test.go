package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// startHub runs JupyterHub below the base URL /team/, whose user ana has JupyterLab below /team/user/ana/.
func startHub(t *testing.T, prefix string) *Server {
	t.Helper()
	root := repository(t)
	packages := filepath.Join(root, ".hub")
	proxy := filepath.Join(root, "e2e", "lab", "node_modules", "configurable-http-proxy", "bin", "configurable-http-proxy")
	for _, needed := range []string{filepath.Join(packages, "jupyterhub"), proxy} {
		if _, err := os.Stat(needed); err != nil {
			t.Skipf("missing: %s (make .hub/.done e2e/lab/node_modules)", needed)
		}
	}
	bin := jupyter(t, "lab")
	s := newServer(t, "lab/tree")
	ports := []string{freePort(t), freePort(t), freePort(t)}
	s.hub = fmt.Sprintf("http://127.0.0.1:%s/team/", ports[1])
	cmd := exec.Command(filepath.Join(filepath.Dir(bin), "python"), "-m", "jupyterhub", "-f",
		filepath.Join(root, "e2e", "lab", "jupyterhub_config.py"))
	cmd.Env = append(s.environment(filepath.Dir(bin), prefix),
		"PYTHONPATH="+packages, "HUB_PORTS="+ports[0]+" "+ports[1]+" "+ports[2], "HUB_PROXY="+proxy, "HUB_NOTEBOOKS="+s.Root)
	s.run(t, cmd)
	s.await(t, func(ctx context.Context) (string, error) {
		return s.hub + "user/ana/", responds(ctx, s.hub+"hub/api")
	})
	return s
}

// TestHub: every verb in JupyterLab that JupyterHub has started below its base URL, with TensorBoard in the cell; then
// the panel, with lines and TensorBoard through both proxies.
func TestHub(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterHub, JupyterLab, TensorBoard and a browser")
	}
	s := startHub(t, install(t))
	s.everyVerb(t, nil)
	nb := s.WriteNotebook(t, "panel.ipynb", "tfcluster", "%tfcluster reserve --workers 2 --framework none", panelProgram,
		"%tfcluster start main_fun", "%tfcluster wait", "%tfcluster shutdown --force")
	checkPanel(t, frontEnds()[0], s.RunNotebook(t, nb, "size:1500x1000", "command:tfcluster:open-panel",
		shows("No cluster"), run(0), run(1), run(2), run(3), shows("running for"), "command:tfcluster:open-logs",
		"page-seen:.tfcluster-line=step 20 of 0", "shot:panel", clicks("Stop"), "page-click:.jp-Dialog .jp-mod-accept",
		shows("stopped after"), clicks("TensorBoard"), "page-frame:.tfcluster-board-page iframe=scalar-card svg",
		"shot:board", "focus:panel.ipynb", "idle", run(4), "idle", shows("No cluster|released"), "save"))
	s.checkNoSecrets(t, nb)
}

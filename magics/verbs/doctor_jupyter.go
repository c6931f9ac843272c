package verbs

import (
	"bytes"
	"cmp"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/magics/advisories"
	"github.com/tfcluster/tfcluster/magics/session"
)

// jupyterPID is the environment variable by which Jupyter tells a kernel its server's process.
const jupyterPID = "JPY_PARENT_PID"

// serverPython returns the interpreter that runs the Jupyter server of this kernel; "" if there is no server,
// or it is not a Python whose path is known.
func serverPython() string {
	pid, err := strconv.Atoi(os.Getenv(jupyterPID))
	if err != nil {
		return ""
	}
	return python.OfProcess(pid)
}

// jupyter is what doctor knows of the environment in which Jupyter runs.
type jupyter struct {
	python, prefix, lab, proxy string
	tfcluster                  string // its version, if pip has installed it there
	program                    string // this program
	server                     bool   // it runs; else this is the environment of the notebook's Python
	versions                   map[string]string
}

// jupyterPackages are the packages whose versions doctor asks Jupyter's environment for.
func jupyterPackages() []string { return append(advisories.Packages(), "jupyter-client", "tfcluster") }

// findJupyter finds the environment of the kernel's server, or asks the notebook's Python for its own packages.
func (inv *invocation) findJupyter(ctx context.Context, interpreter string, own map[string]string) []finding {
	program, err := os.Executable()
	if err != nil {
		program = "tfcluster"
	}
	j := jupyter{
		python: interpreter, prefix: own["prefix"], lab: own["jupyterlab"], proxy: own["jupyter-server-proxy"],
		program: program, versions: own,
	}
	if server := serverPython(); server != "" {
		if got, err := python.Versions(ctx, server, jupyterPackages()...); err == nil {
			j = jupyter{
				python: server, prefix: got["prefix"], lab: got["jupyterlab"], proxy: got["jupyter-server-proxy"],
				tfcluster: got["tfcluster"], program: program, server: true, versions: got,
			}
		}
	}
	findings := append(j.findings(own["prefix"]), j.flaws()...)
	if channels := inv.session.Options.Channels; channels != nil {
		findings = append(findings, j.encryption(channels()))
	}
	if remains := inv.session.Options.Remains; remains != nil {
		if found := remains(); len(found) > 0 {
			findings = append(findings, finding{
				what: "an earlier install", found: "hides or doubles what pip installed: " + strings.Join(found, ", "),
				remedy: python.ShellQuoted(program) + " install",
			})
		}
	}
	return findings
}

// findings compares Jupyter's environment with that of the kernel's Python, whose prefix is own.
func (j jupyter) findings(own string) []finding {
	apart := j.server && !SameFolder(j.prefix, own)
	f := finding{what: "JupyterLab", found: cmp.Or(j.lab, "not installed in this environment")}
	switch {
	case apart:
		f.found += ", " + j.python + ": another environment than the kernel's"
	case j.lab == "" && !j.server:
		f.found += "; for one in another: " + python.ShellQuoted(j.program) + " install --prefix ITS_FOLDER"
	}
	proxy := finding{what: "jupyter-server-proxy", found: j.proxy}
	if proxy.found == "" {
		proxy.found = "not installed (for TensorBoard; without it there are curves)"
		proxy = proxy.install(j.python, proxy.what)
		if j.lab == "" && !j.server {
			proxy.installer = ""
			proxy.remedy = "pip install jupyter-server-proxy where JupyterLab runs, then restart it"
		}
	}
	extension := findExtension(j.prefix, j.server)
	if !apart {
		return []finding{f, proxy, extension}
	}
	register := python.ShellQuoted(j.program) + " install --prefix " + python.ShellQuoted(j.prefix) +
		", then restart Jupyter"
	if extension.remedy != "" {
		extension.found, extension.remedy = "not installed where JupyterLab runs", register
	}
	entry := finding{what: "TensorBoard's entry", found: j.proxyEntry()}
	if entry.found == "" {
		entry.found, entry.remedy = "the Jupyter server has none", register
	}
	return []finding{f, proxy, extension, entry}
}

// flaws finds packages of Jupyter's environment with known security flaws.
func (j jupyter) flaws() []finding {
	var findings []finding
	if fine := advisories.None(j.versions); fine != "" {
		findings = append(findings, finding{what: "security advisories", found: "none known for " + fine})
	}
	for _, f := range advisories.Find(j.versions) {
		findings = append(findings,
			finding{what: f.Package, found: f.String()}.install(j.python, "'"+f.Package+">="+f.Fixed+"'"))
	}
	return findings
}

// The first versions that can encrypt a kernel's channels.
const encryptingClient, encryptingServer = "8.9", "2.20"

// encryption tells how the channels between Jupyter and this kernel are protected. Jupyter's default is clear text on
// this machine, which is no fault.
func (j jupyter) encryption(c session.Channels, err error) finding {
	f := finding{what: "kernel's channels"}
	setting := `c.MappingKernelManager.transport_encryption = "auto" in jupyter_server_config.py`
	if advisories.Older(j.versions["jupyter-client"], encryptingClient) ||
		advisories.Older(j.versions["jupyter-server"], encryptingServer) {
		setting = "jupyter_client " + encryptingClient + " and jupyter_server " + encryptingServer +
			" or newer, and " + setting
	}
	switch {
	case err != nil:
		f.found, f.remedy = "not known: "+err.Error(), "start the kernel again"
	case c.Encrypted:
		f.found = "encrypted (CURVE)"
	case c.Host == "":
		f.found = "Unix sockets of this user"
	case c.Host == "localhost" || net.ParseIP(c.Host).IsLoopback():
		f.found = "signed clear text on this machine (" + c.Host + "); to encrypt them: " + setting
	default:
		f.found, f.remedy = "signed clear text at "+c.Host+": who reads the network reads code and outputs", setting+
			", then restart Jupyter"
	}
	return f
}

// proxyEntry returns where the Jupyter server finds what jupyter-server-proxy starts; "" for nowhere.
func (j jupyter) proxyEntry() string {
	if j.tfcluster != "" && j.tfcluster != "installed" { // pip's, with an entry point; "installed": a package without one
		return "tfcluster " + j.tfcluster + " in " + j.prefix
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	for _, dir := range []string{
		filepath.Join(j.prefix, "etc/jupyter"), cmp.Or(os.Getenv("JUPYTER_CONFIG_DIR"), filepath.Join(home, ".jupyter")),
		"/usr/local/etc/jupyter", "/etc/jupyter",
	} {
		path := filepath.Join(dir, "jupyter_server_config.py")
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("tfcluster")) {
			return path
		}
	}
	return ""
}

// SameFolder reports that two paths name one folder, one of them perhaps by a link.
func SameFolder(a, b string) bool {
	if a == b {
		return true
	}
	first, err := os.Stat(a)
	if err != nil {
		return false
	}
	second, err := os.Stat(b)
	return err == nil && os.SameFile(first, second)
}

// findExtension searches JupyterLab's folders for the extension: the user's, the system's, and those below the prefix
// of JupyterLab's Python. If that is not known to be JupyterLab's, those of active environments are searched too: a
// server that runs does not look there.
func findExtension(prefix string, known bool) finding {
	f := finding{what: "JupyterLab extension"}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	candidates := []string{
		os.Getenv("JUPYTER_DATA_DIR"), filepath.Join(home, ".local/share/jupyter"), "/usr/local/share/jupyter",
		"/usr/share/jupyter",
	}
	candidates = append(candidates, filepath.SplitList(os.Getenv("JUPYTER_PATH"))...)
	prefixes := []string{prefix}
	if !known {
		prefixes = append(prefixes, os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX"))
		if lab, err := exec.LookPath("jupyter-lab"); err == nil {
			prefixes = append(prefixes, filepath.Dir(filepath.Dir(lab)))
		}
	}
	if data := os.Getenv("XDG_DATA_HOME"); data != "" {
		candidates = append(candidates, filepath.Join(data, "jupyter"))
	}
	for _, p := range prefixes {
		if p != "" {
			candidates = append(candidates, filepath.Join(p, "share/jupyter"))
		}
	}
	for _, dir := range candidates {
		if dir == "" {
			continue
		}
		found, err := filepath.Glob(filepath.Join(dir, "labextensions", "tfcluster*"))
		if err == nil && len(found) > 0 {
			f.found = found[0]
			return f
		}
	}
	f.found, f.remedy = "not installed", "tfcluster install --user"
	return f
}

package verbs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/advisories"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var doctorVerb = row{
	Verb: command.Verb{
		Name: "doctor", Summary: "what this machine has and lacks, each with a remedy", Magic: true, Shell: true, Now: true,
		Options: []command.Option{clusterOption, nowOption}, Example: "doctor",
	},
	run: (*invocation).doctor,
}

// finding is the result of one check.
type finding struct {
	what, found string
	remedy      string // not empty: something is missing
	installer   string // not empty: the command with which the remedy begins, and which takes more packages
}

// install returns the finding with packages to install for an interpreter.
func (f finding) install(interpreter, packages string) finding {
	f.installer = python.InstallCommand(interpreter)
	f.remedy = f.installer + " " + packages
	return f
}

// probeTimeout bounds each program that doctor runs.
const probeTimeout = 30 * time.Second

// doctor checks this machine's installation, with a remedy for each problem.
func (inv *invocation) doctor(ctx context.Context) (result.Value, error) {
	findings := inv.findPython(ctx)
	findings = append(findings, findTensorBoard(ctx, inv.session.Options.TensorBoardPython))
	findings = append(append(findings, inv.findGPUs(ctx), findNetwork(), findDisk(inv.workingDir(ctx))), findFolders()...)
	findings = append(findings, inv.diagnose(ctx)...)
	title, lacks := doctorTitle(findings)
	render.Display(inv.out, doctorView(findings, "tfcluster "+inv.session.Options.Version+": "+title))
	if lacks && inv.session.Options.Shell {
		return nil, errors.New(title)
	}
	return nil, nil
}

func doctorTitle(findings []finding) (title string, lacks bool) {
	n := 0
	for _, f := range findings {
		if f.remedy != "" {
			n++
		}
	}
	switch n {
	case 0:
		return "nothing is missing", false
	case 1:
		return "1 thing is missing or wrong", true
	}
	return fmt.Sprintf("%d things are missing or wrong", n), true
}

func doctorView(findings []finding, title string) render.Bundle {
	t := render.Table{Head: []string{"", "what", "found", "remedy"}}
	var installers []string
	packages := map[string][]string{} // by installer
	for _, f := range findings {
		mark := render.Cell{Text: "ok", Tone: render.ToneGood}
		if f.remedy != "" {
			mark = render.Cell{Text: "--", Tone: render.ToneBad}
		}
		if by := f.installer; by != "" {
			if packages[by] == nil {
				installers = append(installers, by)
			}
			packages[by] = append(packages[by], strings.TrimPrefix(f.remedy, by+" "))
			f.remedy = "see below"
		}
		t.Rows = append(t.Rows, []render.Cell{mark, {Text: f.what}, {Text: f.found}, {Text: f.remedy}})
	}
	b := render.Title(title).Table(t.Drop())
	for _, by := range installers {
		b = b.Code(by + " " + strings.Join(packages[by], " "))
	}
	return b
}

// interpreter returns the notebook's Python.
func (inv *invocation) interpreter() string {
	return fullPath(cmp.Or(inv.session.Options.Python, "python3"))
}

// fullPath returns the absolute path of a program, which may be on PATH: it is run in another folder.
func fullPath(program string) string {
	if found, err := exec.LookPath(program); err == nil {
		if path, err := filepath.Abs(found); err == nil {
			return path
		}
	}
	return program
}

func (inv *invocation) findPython(ctx context.Context) []finding {
	interpreter := inv.interpreter()
	got, err := python.Versions(ctx, interpreter, append(jupyterPackages(), "ipykernel", "cloudpickle", "pyarrow", "tensorflow", "keras")...)
	if err != nil {
		return []finding{{what: "Python", found: err.Error(), remedy: "repair it, or name a Python " + pythons() + ": tfcluster install --user --python PATH"}}
	}
	return append(findPackages(interpreter, got), inv.findJupyter(ctx, interpreter, got)...)
}

// The minor versions of Python 3 that tfcluster is tested with. TensorFlow has wheels for these alone. pythons names them.
const oldestPython, newestPython = 11, 13

func pythons() string { return fmt.Sprintf("3.%d to 3.%d", oldestPython, newestPython) }

// findPackages compares the notebook's Python, and the versions of its packages, with what tasks need.
func findPackages(interpreter string, got map[string]string) []finding {
	version := finding{what: "Python", found: interpreter + ", " + got["python"]}
	var minor int
	_, err := fmt.Sscanf(got["python"], "3.%d", &minor)
	tested := err == nil && minor >= oldestPython && minor <= newestPython
	switch {
	case tested:
	case err == nil && minor > newestPython:
		version.found += ": not tested, as " + pythons() + " are"
	default:
		version.remedy = "install Python " + pythons()
	}
	findings := []finding{version}
	for _, p := range []struct{ name, why string }{
		{"ipykernel", "runs the notebook's Python cells"},
		{"cloudpickle", "takes main_fun from the notebook to the tasks"},
		{"pyarrow", "carries DATA of train, evaluate and inference to the tasks"},
		{"tensorflow", "what the tasks run"},
		{"keras", ""},
	} {
		f := finding{what: p.name, found: got[p.name]}
		if f.found == "" {
			f.found = "not installed"
			if p.why != "" {
				f.found += " (" + p.why + ")"
			}
			f = f.install(interpreter, p.name)
			if !tested && (p.name == "tensorflow" || p.name == "keras") {
				f.installer, f.remedy = "", "make an environment with Python "+pythons()+": TensorFlow may have no wheel for "+got["python"]
			}
		}
		findings = append(findings, f)
	}
	return findings
}

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
	j := jupyter{python: interpreter, prefix: own["prefix"], lab: own["jupyterlab"], proxy: own["jupyter-server-proxy"], program: program, versions: own}
	if server := serverPython(); server != "" {
		if got, err := python.Versions(ctx, server, jupyterPackages()...); err == nil {
			j = jupyter{python: server, prefix: got["prefix"], lab: got["jupyterlab"], proxy: got["jupyter-server-proxy"], tfcluster: got["tfcluster"], program: program, server: true, versions: got}
		}
	}
	findings := append(j.findings(own["prefix"]), j.flaws()...)
	if channels := inv.session.Options.Channels; channels != nil {
		findings = append(findings, j.encryption(channels()))
	}
	if remains := inv.session.Options.Remains; remains != nil {
		if found := remains(); len(found) > 0 {
			findings = append(findings, finding{what: "an earlier install", found: "hides or doubles what pip installed: " + strings.Join(found, ", "), remedy: python.ShellQuoted(program) + " install"})
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
	register := python.ShellQuoted(j.program) + " install --prefix " + python.ShellQuoted(j.prefix) + ", then restart Jupyter"
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
		findings = append(findings, finding{what: f.Package, found: f.String()}.install(j.python, "'"+f.Package+">="+f.Fixed+"'"))
	}
	return findings
}

// The first versions that can encrypt a kernel's channels.
const encryptingClient, encryptingServer = "8.9", "2.20"

// encryption tells how the channels between Jupyter and this kernel are protected. Jupyter's default is clear text on this
// machine, which is no fault.
func (j jupyter) encryption(c session.Channels, err error) finding {
	f := finding{what: "kernel's channels"}
	setting := `c.MappingKernelManager.transport_encryption = "auto" in jupyter_server_config.py`
	if advisories.Older(j.versions["jupyter-client"], encryptingClient) || advisories.Older(j.versions["jupyter-server"], encryptingServer) {
		setting = "jupyter_client " + encryptingClient + " and jupyter_server " + encryptingServer + " or newer, and " + setting
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
		f.found, f.remedy = "signed clear text at "+c.Host+": who reads the network reads code and outputs", setting+", then restart Jupyter"
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
	for _, dir := range []string{filepath.Join(j.prefix, "etc/jupyter"), cmp.Or(os.Getenv("JUPYTER_CONFIG_DIR"), filepath.Join(home, ".jupyter")), "/usr/local/etc/jupyter", "/etc/jupyter"} {
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
	candidates := []string{os.Getenv("JUPYTER_DATA_DIR"), filepath.Join(home, ".local/share/jupyter"), "/usr/local/share/jupyter", "/usr/share/jupyter"}
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

func findDisk(dir string) finding {
	f := finding{what: "disk", found: dir}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		f.found, f.remedy = fmt.Sprintf("%s: %v", dir, err), "go to a folder that exists"
		return f
	}
	free := st.Bavail * uint64(st.Bsize)
	f.found = render.BytesText(free) + " free in " + dir
	if free < 2<<30 {
		f.remedy = "free some space, or reserve with another --dir"
	}
	return f
}

// findFolders finds the user's folders for sockets and for the state of clusters.
func findFolders() []finding {
	sockets, serr := state.RuntimeDir()
	home, err := state.Home()
	if err == nil {
		err = os.MkdirAll(home, 0o700)
	}
	if err == nil {
		_, err = os.ReadDir(home)
	}
	folders := []finding{{what: "sockets", found: sockets}, {what: "state", found: home}}
	for i, err := range []error{serr, err} {
		if err != nil {
			folders[i].found, folders[i].remedy = err.Error(), "set "+[]string{"XDG_RUNTIME_DIR", "TFCLUSTER_HOME"}[i]+" to a folder of yours with mode 0700"
		}
	}
	return folders
}

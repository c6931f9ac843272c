package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
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
	got, err := python.Versions(ctx, interpreter,
		append(jupyterPackages(), "ipykernel", "cloudpickle", "pyarrow", "tensorflow", "keras")...)
	if err != nil {
		return []finding{{
			what: "Python", found: err.Error(), remedy: "repair it, or name a Python " + pythons() +
				": tfcluster install --user --python PATH",
		}}
	}
	return append(findPackages(interpreter, got), inv.findJupyter(ctx, interpreter, got)...)
}

// The minor versions of Python 3 that tfcluster is tested with. TensorFlow has wheels for these alone.
// pythons names them.
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
				f.installer, f.remedy = "", "make an environment with Python "+pythons()+": TensorFlow may have no wheel for "+
					got["python"]
			}
		}
		findings = append(findings, f)
	}
	return findings
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
			folders[i].found, folders[i].remedy = err.Error(), "set "+[]string{"XDG_RUNTIME_DIR", "TFCLUSTER_HOME"}[i]+
				" to a folder of yours with mode 0700"
		}
	}
	return folders
}

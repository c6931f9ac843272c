package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/python"
	jupyterext "github.com/tfcluster/tfcluster/jupyter-ext"
)

// wheelProgram is in programFile of a package that pip installed.
const wheelProgram = "pip"

// wheelInstall is where pip installed a program.
type wheelInstall struct {
	jupyter jupyterext.Target
	python  string // for which pip installed it; "" if it is gone
	prefix  string
}

// ofWheel returns where pip installed a program, and nil if pip did not.
func ofWheel(program string) *wheelInstall {
	prefix := filepath.Dir(filepath.Dir(program))
	w := &wheelInstall{jupyter: jupyterext.PrefixTarget(prefix), prefix: prefix}
	if !w.jupyter.FromWheel() {
		return nil
	}
	for _, sign := range []string{"pyvenv.cfg", "conda-meta"} {
		interpreter := filepath.Join(prefix, "bin", "python")
		if _, err := os.Stat(filepath.Join(prefix, sign)); err != nil {
			continue
		}
		if _, err := os.Stat(interpreter); err == nil {
			w.python = interpreter
		}
	}
	if w.python == "" {
		w.python = pythonWithPackage(prefix)
	}
	return w
}

// pythonWithPackage returns the Python that has the package tfcluster below a prefix that is no environment, such as
// ~/.local, as wheel/launch.py finds it; "" if it is not there.
func pythonWithPackage(prefix string) string {
	var names []string
	for _, packages := range []string{"site-packages", "dist-packages"} {
		found, err := filepath.Glob(filepath.Join(globQuoted(prefix), "lib*", "python3.*", packages, "tfcluster"))
		if err != nil {
			continue
		}
		for _, path := range found {
			names = append(names, filepath.Base(filepath.Dir(filepath.Dir(path))))
		}
	}
	// The newest first.
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(b, a)) })
	for _, name := range names {
		for _, dir := range append([]string{filepath.Join(prefix, "bin")}, filepath.SplitList(os.Getenv("PATH"))...) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "pyvenv.cfg")); err == nil {
				continue // an environment, which does not have what is installed elsewhere
			}
			if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil && filepath.IsAbs(path) {
				return path
			}
		}
	}
	return ""
}

// globQuoted is a path that Glob takes as it is.
func globQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// thisWheel returns where pip installed this program, and nil if pip did not.
func thisWheel() *wheelInstall {
	program, err := os.Executable()
	if err != nil {
		return nil
	}
	return ofWheel(program)
}

// wheelPython returns the Python of the environment that pip installed this program into; "" if there is none.
func wheelPython() string {
	if w := thisWheel(); w != nil {
		return w.python
	}
	return ""
}

// targets returns the folders in which an earlier `tfcluster install` of another program may have written what now
// hides or doubles what pip installed.
func (w *wheelInstall) targets() []jupyterext.Target {
	targets := []jupyterext.Target{w.jupyter}
	user, err := jupyterext.UserTarget()
	if err != nil || user == w.jupyter {
		return targets
	}
	if argv, _, _ := readSpec(user); len(argv) > 0 && argv[0] == filepath.Join(w.prefix, "bin", "tfcluster") {
		return targets // install --user of this program, for Jupyters in other environments
	}
	return append(targets, user)
}

// remains returns what an earlier `tfcluster install` of another program wrote.
func (w *wheelInstall) remains() []string {
	var found []string
	for _, t := range w.targets() {
		found = append(found, t.Written()...)
	}
	return found
}

// refuse says which setting has the effect of an option that the kernel of pip does not have.
func (w *wheelInstall) refuse(t *target) error {
	if t.options["python"] {
		other := python.ShellQuoted(t.python)
		if w.python == "" {
			return fmt.Errorf("--python: the kernel that pip installed keeps its Python: install tfcluster for the other with "+
				"%s tfcluster, or, for tfcluster run in a shell, set TFCLUSTER_PYTHON=%s", python.InstallCommand(t.python), other)
		}
		return fmt.Errorf("--python: the kernel that pip installed keeps its Python, %s: add a kernel with the other by "+
			"tfcluster install --user --python %s, or, for tfcluster run in a shell, set TFCLUSTER_PYTHON=%s", w.python,
			other, other)
	}
	if t.options["tensorboard-python"] {
		return fmt.Errorf("--tensorboard-python has no effect on the kernel that pip installed, and nothing was changed: "+
			"set TFCLUSTER_TENSORBOARD_PYTHON=%s in the environment of the Jupyter server, and start it again",
			python.ShellQuoted(t.tensorboard))
	}
	return nil
}

// tidy is `tfcluster install` where pip has installed everything: it removes what an earlier one wrote.
func (w *wheelInstall) tidy(userPackages string) error {
	fmt.Println("pip has installed the kernel, the extension and the package below", w.prefix)
	targets, found := w.targets(), w.remains()
	if program, err := os.ReadFile(filepath.Join(userPackages, "tfcluster", programFile)); userPackages != "" &&
		err == nil && !pipOwns(program) {
		found = append(found, filepath.Join(userPackages, "tfcluster"))
		if err := removePackage(userPackages); err != nil {
			return err
		}
	}
	for _, t := range targets {
		if err := t.RemoveWritten(); err != nil {
			return err
		}
	}
	for _, path := range found {
		fmt.Println("removed what an earlier tfcluster install wrote:", path)
	}
	return nil
}

// pipOwns reports that the content of programFile is that of a wheel.
func pipOwns(content []byte) bool { return strings.TrimSpace(string(content)) == wheelProgram }

// errFromWheel says why install and uninstall leave files alone.
func errFromWheel(prefix string) error {
	interpreter := filepath.Join(prefix, "bin", "python")
	if _, err := os.Stat(interpreter); err != nil {
		interpreter = cmp.Or(pythonWithPackage(prefix), "python3")
	}
	return fmt.Errorf("pip installed tfcluster below %s, and removes it: %s tfcluster", prefix,
		python.UninstallCommand(interpreter))
}

// remainsOfInstall returns what an earlier `tfcluster install` wrote, where pip has installed this program.
func remainsOfInstall() []string {
	if w := thisWheel(); w != nil {
		return w.remains()
	}
	return nil
}

package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/python"
	jupyterext "github.com/tfcluster/tfcluster/jupyter-ext"
	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/magics/verbs"
)

const installUsage = "usage: tfcluster install [--user | --prefix DIR | --sys-prefix] [--python PATH] " +
	`[--tensorboard-python PATH]
                         [--tensorflowonspark]
       tfcluster uninstall [--user | --prefix DIR | --sys-prefix] [--python PATH] [--tensorflowonspark]

For a Jupyter without pip, or in another environment than this program: pip install
tfcluster does the same for its own. There, install without an option removes what
an earlier one wrote.

Registers the kernel Python 3 (TFCluster), the JupyterLab extension and the entry of
jupyter-server-proxy, and installs the Python package tfcluster for the interpreter.

  --user                 for this user (default)
  --prefix DIR           for the Jupyter that is installed below DIR
  --sys-prefix           for the Jupyter beside the interpreter
  --python PATH          runs Python cells, and local tasks unless another is set
                         (default: the first python3 of PATH that has ipykernel)
  --tensorboard-python PATH
                         has tensorboard, preferably without TensorFlow: it starts
                         sooner and takes less memory (default: that of --python)
  --tensorflowonspark    also the package tensorflowonspark, for programs with its imports:
                         its modules are those of tfcluster.tfos. uninstall removes it, with
                         this option it alone
`

// target describes where install and uninstall work.
type target struct {
	jupyter     jupyterext.Target
	python      string
	tensorboard string
	packages    string          // the folder for the Python package
	names       bool            // the package tensorflowonspark, too
	namesDir    string          // the folder for it
	real        realPackage     // of that name
	chosen      bool            // by an option
	options     map[string]bool // those of the command line
}

func parseTarget(verb string, args []string) (*target, error) {
	flags := flag.NewFlagSet(verb, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	user := flags.Bool("user", false, "")
	prefix := flags.String("prefix", "", "")
	sysPrefix := flags.Bool("sys-prefix", false, "")
	t := &target{options: map[string]bool{}}
	flags.StringVar(&t.python, "python", "", "")
	flags.BoolVar(&t.names, "tensorflowonspark", false, "")
	flags.StringVar(&t.tensorboard, "tensorboard-python", os.Getenv("TFCLUSTER_TENSORBOARD_PYTHON"), "")
	if err := flags.Parse(args); err != nil {
		return nil, flagError(verb, err)
	}
	flags.Visit(func(f *flag.Flag) { t.options[f.Name] = true })
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q: tfcluster %s takes only options; tfcluster %s --help lists them",
			flags.Arg(0), verb, verb)
	}
	chosen := 0
	for _, c := range []bool{*user, *prefix != "", *sysPrefix} {
		if c {
			chosen++
		}
	}
	if chosen > 1 {
		return nil, errors.New("--user, --prefix and --sys-prefix exclude each other: give one of them")
	}
	t.chosen = chosen > 0
	if t.python == "" {
		t.python = findPython()
	}
	facts, err := inspectPython(t.python)
	switch {
	case err != nil && (verb == "install" || *sysPrefix):
		return nil, err
	case err != nil: // the interpreter was removed, and its packages with it
		facts = &pythonFacts{}
	case verb == "install" && !facts.IPykernel:
		return nil, fmt.Errorf("%s has no ipykernel, which runs the cells: install it (%s ipykernel) and repeat the "+
			"command, or name another Python with --python PATH", t.python, python.InstallCommand(t.python))
	}
	t.python = facts.Executable
	switch {
	case *prefix != "":
		dir, err := filepath.Abs(*prefix)
		if err != nil {
			return nil, fmt.Errorf("--prefix %s: the working directory cannot be found (%w): change to another one, "+
				"or give an absolute path", *prefix, err)
		}
		t.jupyter = jupyterext.PrefixTarget(dir)
		if verbs.SameFolder(dir, facts.Prefix) {
			t.packages = facts.Purelib
		}
	case *sysPrefix:
		t.jupyter, t.packages = jupyterext.PrefixTarget(facts.Prefix), facts.Purelib
	default:
		if t.jupyter, err = jupyterext.UserTarget(); err != nil {
			return nil, err
		}
		t.packages = facts.UserSite
	}
	t.namesDir, t.real = t.namesFolder(facts), facts.TensorFlowOnSpark
	return t, nil
}

// flagError rewrites an error of package flag for options with two dashes.
func flagError(verb string, err error) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		return fmt.Errorf("no option --%s; tfcluster %s --help lists them", name, verb)
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return fmt.Errorf("--%s needs a value; tfcluster %s --help describes it", name, verb)
	}
	return err
}

// pythonFacts are an interpreter's properties.
type pythonFacts struct {
	Executable, Prefix, Purelib, UserSite string
	IPykernel                             bool
	TensorFlowOnSpark                     realPackage
}

const factsScript = `import json, site, sys, sysconfig, importlib.metadata as m, importlib.util as u
spec = u.find_spec("tensorflowonspark")
found = [*(spec.submodule_search_locations or []), spec.origin] if spec else [""]
names = {"Package": found[0], "Distribution": "".join([str(d.locate_file("")) for d in
  m.distributions(name="tensorflowonspark")][:1])}
print(json.dumps({"Executable": sys.executable, "Prefix": sys.prefix, "Purelib": sysconfig.get_path("purelib"),
  "UserSite": site.getusersitepackages() if sys.prefix == sys.base_prefix else sysconfig.get_path("purelib"),
  "IPykernel": u.find_spec("ipykernel") is not None, "TensorFlowOnSpark": names}))`

func inspectPython(interpreter string) (*pythonFacts, error) {
	out, err := pythonCommand(interpreter, factsScript).Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w%s; set another Python with --python PATH", interpreter, err, python.LastLine(err))
	}
	f := &pythonFacts{}
	if err := json.Unmarshal(out, f); err != nil {
		return nil, fmt.Errorf("%s did not print its folders and version (%w): a sitecustomize or .pth file may print; "+
			"set another Python with --python PATH", interpreter, err)
	}
	return f, nil
}

// runSetup runs install or uninstall, and returns the exit code.
func runSetup(verb string, args []string) int {
	t, err := parseTarget(verb, args)
	code := 2 // wrong usage
	if err == nil {
		code = 1
		if verb == "install" {
			err = install(t)
		} else {
			err = uninstall(t)
		}
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Print(installUsage)
		return 0
	}
	printError(verb, err)
	return code
}

// uninstall removes the files that install wrote.
func uninstall(t *target) error {
	names := removeNames(t.namesDir)
	if t.names {
		return names
	}
	if t.jupyter.FromWheel() {
		return errors.Join(names, t.jupyter.RemoveWritten(), errFromWheel(t.jupyter.Prefix()))
	}
	err := errors.Join(names, t.jupyter.Uninstall())
	if t.packages != "" {
		err = errors.Join(err, removePackage(t.packages))
	}
	if w := thisWheel(); w != nil && !t.chosen {
		err = errors.Join(err, errFromWheel(w.prefix))
	}
	return err
}

// install installs all files.
func install(t *target) error {
	binary, err := ownPath()
	if err != nil {
		return err
	}
	if t.tensorboard != "" {
		if t.tensorboard, err = filepath.Abs(t.tensorboard); err != nil {
			return fmt.Errorf("--tensorboard-python %s: the working directory cannot be found (%w): change to another one, "+
				"or give an absolute path", t.tensorboard, err)
		}
	}
	w := ofWheel(binary)
	own := w != nil && (!t.chosen || verbs.SameFolder(t.jupyter.Data, w.jupyter.Data))
	if own {
		err = w.refuse(t)
	} else if t.jupyter.FromWheel() {
		err = errFromWheel(t.jupyter.Prefix())
	}
	if err == nil && t.names {
		if err = t.refuseNames(); err == nil {
			err = installNames(t.namesDir)
		}
	}
	switch {
	case err != nil:
		return err
	case own:
		return w.tidy(t.packages)
	}
	env := map[string]string{}
	if t.tensorboard != "" {
		env["TFCLUSTER_TENSORBOARD_PYTHON"] = t.tensorboard
	}
	spec, err := kernel.NewSpec("Python 3 (TFCluster)",
		[]string{binary, "kernel", "-f", "{connection_file}", "--python", t.python}, env).JSON()
	if err != nil {
		return err
	}
	if err := t.jupyter.Install(binary, spec); err != nil {
		return err
	}
	fmt.Println("kernel \"Python 3 (TFCluster)\" and extension:", t.jupyter.Data)
	if t.packages == "" {
		return nil
	}
	if content, err := os.ReadFile(filepath.Join(t.packages, "tfcluster", programFile)); err == nil && pipOwns(content) {
		return nil
	}
	if err := installPackage(t.packages, binary); err != nil {
		step := "correct this and install again"
		if errors.Is(err, os.ErrPermission) {
			step = "to have it too, install again with the --python of an environment that this user can write"
		}
		return fmt.Errorf("the kernel is installed, but not the package for plain ipykernels and scripts: %w; %s", err, step)
	}
	fmt.Println("package tfcluster:", t.packages)
	return nil
}

// programFile is the name of a file in the installed package with the path of this program.
const programFile = "_program.txt"

// installPackage installs the Python package for plain ipykernels and scripts.
func installPackage(dir, binary string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	aside, err := os.MkdirTemp(dir, ".tfcluster-")
	if err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	defer os.RemoveAll(aside)
	from, err := python.Extract(aside)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(from, "tfcluster", programFile), []byte(binary+"\n"), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	if err := removePackage(dir); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(from, "tfcluster"), filepath.Join(dir, "tfcluster")); err != nil {
		return fmt.Errorf("write %s: %w", dir, err)
	}
	return nil
}

// removePackage removes the package that install wrote; it does not remove another package with that name.
func removePackage(dir string) error {
	path := filepath.Join(dir, "tfcluster")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	content, err := os.ReadFile(filepath.Join(path, programFile))
	if err == nil && pipOwns(content) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s was not installed by tfcluster install (it has no file %s), so it is kept: remove it by hand",
			strings.TrimSuffix(path, "/"), programFile)
	}
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove the Python package: %w; allow that or remove the folder by hand", err)
	}
	return nil
}

package main

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	jupyterext "github.com/tfcluster/tfcluster/jupyter-ext"
)

// pythonCommand returns a command that runs a script. It does not import modules from the working
// directory, where a file may have the name of a library.
func pythonCommand(interpreter, script string) *exec.Cmd {
	cmd := exec.Command(interpreter, "-c", script)
	cmd.Env = append(os.Environ(), "PYTHONSAFEPATH=1")
	return cmd
}

// findPython returns the Python that pip installed this program for, or the first python3
// of PATH that has ipykernel.
func findPython() string {
	if own := wheelPython(); own != "" {
		return own
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p := filepath.Join(dir, "python3")
		if pythonCommand(p, "import ipykernel").Run() == nil {
			return p
		}
	}
	return "python3"
}

// shellPython returns the interpreters of tasks and of TensorBoard for a shell: those of the environment
// variables, or the active environment, or the one that pip installed this program for; otherwise those
// of the installed kernelspec, or python3.
func shellPython() (tasks, tensorboard string) {
	tasks, tensorboard = os.Getenv("TFCLUSTER_PYTHON"), os.Getenv("TFCLUSTER_TENSORBOARD_PYTHON")
	if tasks == "" {
		tasks = activePython()
	}
	installed, installedTensorBoard := installedPython()
	if own := wheelPython(); tasks == "" && own != "" {
		return own, cmp.Or(tensorboard, own)
	}
	tasks = cmp.Or(tasks, installed, "python3")
	return tasks, cmp.Or(tensorboard, installedTensorBoard, tasks)
}

// activePython returns the interpreter of the environment that the user has activated; "" if none is. That is python3
// on PATH, but not if the program's own environment has been put before it, as uvx does. Conda's base is active in
// every shell where `conda init` says so: it is used if nothing else names a Python, because its programs
// come first on PATH.
func activePython() string {
	var active []string
	if prefix := os.Getenv("VIRTUAL_ENV"); prefix != "" {
		active = append(active, filepath.Join(prefix, "bin"))
	}
	if prefix := os.Getenv("CONDA_PREFIX"); prefix != "" && os.Getenv("CONDA_DEFAULT_ENV") != "base" {
		active = append(active, filepath.Join(prefix, "bin"))
	}
	if len(active) == 0 {
		return ""
	}
	first := true
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p, err := exec.LookPath(filepath.Join(dir, "python3"))
		switch {
		case err != nil:
		case !slices.Contains(active, filepath.Clean(dir)):
			first = false
		case first:
			return "python3"
		default:
			return p
		}
	}
	return "python3"
}

// installedPython returns the interpreters in this user's kernelspec, or in the system's.
func installedPython() (tasks, tensorboard string) {
	targets := []jupyterext.Target{jupyterext.PrefixTarget("/usr/local"), jupyterext.PrefixTarget("/usr")}
	if user, err := jupyterext.UserTarget(); err == nil {
		targets = slices.Insert(targets, 0, user)
	}
	for _, t := range targets {
		argv, env, err := readSpec(t)
		if err != nil {
			continue
		}
		if i := slices.Index(argv, "--python"); i >= 0 && i+1 < len(argv) {
			return argv[i+1], env["TFCLUSTER_TENSORBOARD_PYTHON"]
		}
	}
	return "", ""
}

// readSpec reads the kernelspec below Jupyter's folders.
func readSpec(t jupyterext.Target) (argv []string, env map[string]string, err error) {
	b, err := os.ReadFile(filepath.Join(t.Data, "kernels", "tfcluster", "kernel.json"))
	if err != nil {
		return nil, nil, err
	}
	var spec struct {
		Argv []string
		Env  map[string]string
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		return nil, nil, err
	}
	return spec.Argv, spec.Env, nil
}

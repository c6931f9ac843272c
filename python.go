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

// findPython returns the first python3 of PATH that has ipykernel.
func findPython() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p := filepath.Join(dir, "python3")
		if pythonCommand(p, "import ipykernel").Run() == nil {
			return p
		}
	}
	return "python3"
}

// shellPython returns the interpreters of tasks and of TensorBoard for a shell: those of the environment
// variables, or the active Python environment; otherwise those of the installed kernelspec, or python3.
func shellPython() (tasks, tensorboard string) {
	tasks, tensorboard = os.Getenv("TFCLUSTER_PYTHON"), os.Getenv("TFCLUSTER_TENSORBOARD_PYTHON")
	if tasks == "" && cmp.Or(os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")) != "" {
		tasks = "python3"
	}
	installed, installedTensorBoard := installedPython()
	tasks = cmp.Or(tasks, installed, "python3")
	return tasks, cmp.Or(tensorboard, installedTensorBoard, tasks)
}

// installedPython returns the interpreters in this user's kernelspec, or in the system's.
func installedPython() (tasks, tensorboard string) {
	targets := []jupyterext.Target{jupyterext.PrefixTarget("/usr/local"), jupyterext.PrefixTarget("/usr")}
	if user, err := jupyterext.UserTarget(); err == nil {
		targets = slices.Insert(targets, 0, user)
	}
	for _, t := range targets {
		b, err := os.ReadFile(filepath.Join(t.Data, "kernels", "tfcluster", "kernel.json"))
		if err != nil {
			continue
		}
		var spec struct {
			Argv []string
			Env  map[string]string
		}
		if json.Unmarshal(b, &spec) != nil {
			continue
		}
		if i := slices.Index(spec.Argv, "--python"); i >= 0 && i+1 < len(spec.Argv) {
			return spec.Argv[i+1], spec.Env["TFCLUSTER_TENSORBOARD_PYTHON"]
		}
	}
	return "", ""
}

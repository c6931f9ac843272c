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

// pythonCommand runs a script, which finds no modules in the working directory: a file
// there that is named as one of the library's is not ours to run.
func pythonCommand(interpreter, script string) *exec.Cmd {
	cmd := exec.Command(interpreter, "-c", script)
	cmd.Env = append(os.Environ(), "PYTHONSAFEPATH=1")
	return cmd
}

// findPython is the first python3 of PATH that has ipykernel.
func findPython() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		p := filepath.Join(dir, "python3")
		if pythonCommand(p, "import ipykernel").Run() == nil {
			return p
		}
	}
	return "python3"
}

// shellPython are the interpreters of tasks and of TensorBoard for a shell: what the
// environment says, or an environment of Python's that is active; else those that
// install was given, and python3 where there was no install.
func shellPython() (tasks, tensorboard string) {
	tasks, tensorboard = os.Getenv("TFCLUSTER_PYTHON"), os.Getenv("TFCLUSTER_TENSORBOARD_PYTHON")
	if tasks == "" && cmp.Or(os.Getenv("VIRTUAL_ENV"), os.Getenv("CONDA_PREFIX")) != "" {
		tasks = "python3"
	}
	installed, board := installedPython()
	tasks = cmp.Or(tasks, installed, "python3")
	return tasks, cmp.Or(tensorboard, board, tasks)
}

// installedPython is what this user's kernelspec says, else the system's.
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

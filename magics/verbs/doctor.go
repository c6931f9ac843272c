package verbs

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/python"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
)

// doctorVerb is the row of doctor.
func doctorVerb() row {
	return row{
		Verb: command.Verb{
			Name: "doctor", Summary: "what this machine has and lacks, each with a remedy", Magic: true, Shell: true, Now: true,
			Options: []command.Option{clusterOption(), nowOption()}, Example: "doctor",
		},
		run: (*invocation).doctor,
	}
}

// finding is one thing doctor looked at.
type finding struct {
	what, found string
	remedy      string // not empty: something is missing
}

// probeTimeout bounds each question doctor asks a program.
const probeTimeout = 30 * time.Second

// doctor says what this machine has and lacks, each lack with its remedy.
func (inv *invocation) doctor(ctx context.Context) (result.Value, error) {
	findings := inv.findPython(ctx)
	findings = append(findings, findTensorBoard(ctx, inv.session.Options.TensorBoardPython))
	findings = append(findings, inv.findGPUs(ctx), findDisk(inv.workingDir(ctx)), findRuntimeDir(), findState())
	findings = append(findings, inv.diagnose(ctx)...)
	render.Display(inv.out, doctorView(findings, inv.session.Options.Version))
	return nil, nil
}

func doctorView(findings []finding, version string) render.Bundle {
	t := render.Table{Head: []string{"", "what", "found", "remedy"}}
	lacks := 0
	for _, f := range findings {
		mark := render.Cell{Text: "ok", Tone: render.ToneGood}
		if f.remedy != "" {
			mark = render.Cell{Text: "--", Tone: render.ToneBad}
			lacks++
		}
		t.Rows = append(t.Rows, []render.Cell{mark, {Text: f.what}, {Text: f.found}, {Text: f.remedy}})
	}
	title := fmt.Sprintf("tfcluster %s: %s to see to", version, render.Plural(int64(lacks), "thing"))
	if lacks == 0 {
		title = fmt.Sprintf("tfcluster %s: nothing is missing", version)
	}
	return render.Bundle{Text: title + "\n" + t.Plain(), HTML: "<div><b>" + render.Escape(title) + "</b></div>" + t.HTML()}
}

// interpreter is the notebook's Python.
func (inv *invocation) interpreter() string {
	if inv.session.Options.Python == "" {
		return "python3"
	}
	return inv.session.Options.Python
}

func (inv *invocation) findPython(ctx context.Context) []finding {
	interpreter := inv.interpreter()
	got, err := python.Versions(ctx, interpreter, "ipykernel", "cloudpickle", "tensorflow", "keras", "jupyter-server-proxy", "jupyterlab")
	if err != nil {
		return []finding{{"Python", err.Error(), "install Python 3.11 to 3.13, or name one: tfcluster install --python PATH"}}
	}
	findings := []finding{{"Python", interpreter + ", " + got["python"], ""}}
	for _, p := range []struct{ name, why string }{
		{"ipykernel", "runs the notebook's Python cells"},
		{"cloudpickle", "takes main_fun from the notebook to the tasks"},
		{"tensorflow", "what the tasks run"},
		{"keras", ""},
		{"jupyter-server-proxy", "TensorBoard in the notebook; without it %tfcluster tensorboard draws curves itself"},
	} {
		f := finding{what: p.name, found: got[p.name]}
		if f.found == "" {
			f.found = "not installed"
			if p.why != "" {
				f.found += " (" + p.why + ")"
			}
			f.remedy = interpreter + " -m pip install " + p.name
			if p.name == "jupyter-server-proxy" {
				f.remedy = "pip install jupyter-server-proxy where JupyterLab runs, then restart it"
			}
		}
		findings = append(findings, f)
	}
	return append(findings, findExtension())
}

func findExtension() finding {
	f := finding{what: "JupyterLab extension"}
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	candidates := []string{os.Getenv("JUPYTER_DATA_DIR"), filepath.Join(home, ".local/share/jupyter"), "/usr/local/share/jupyter", "/usr/share/jupyter"}
	candidates = append(candidates, filepath.SplitList(os.Getenv("JUPYTER_PATH"))...)
	if v := os.Getenv("VIRTUAL_ENV"); v != "" {
		candidates = append(candidates, filepath.Join(v, "share/jupyter"))
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

func findTensorBoard(ctx context.Context, interpreter string) finding {
	f := finding{what: "TensorBoard", remedy: "make an environment with tensorboard and set TFCLUSTER_TENSORBOARD_PYTHON to its python"}
	if interpreter == "" {
		f.found = "no environment named"
		return f
	}
	got, err := python.Versions(ctx, interpreter, "tensorboard")
	switch {
	case err != nil:
		f.found = err.Error()
	case got["tensorboard"] == "":
		f.found, f.remedy = "not installed for "+interpreter, interpreter+" -m pip install tensorboard setuptools"
	default:
		f.found, f.remedy = got["tensorboard"]+", "+interpreter, ""
	}
	return f
}

func (inv *invocation) findGPUs(ctx context.Context) finding {
	f := finding{what: "GPUs", found: "none: tasks use CPUs"}
	if inv.session.Options.Inventory == nil {
		return f
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	gpus, err := inv.session.Options.Inventory(ctx)
	switch {
	case err != nil:
		f.found += " (" + err.Error() + ")"
		if _, serr := os.Stat("/dev/nvidiactl"); serr == nil {
			f.remedy = "repair the NVIDIA driver"
		}
	case len(gpus) > 0:
		var names []string
		for _, g := range gpus {
			names = append(names, g.GetName()+" "+render.BytesText(g.GetMemoryBytes()))
		}
		f.found = render.ShortList(names, 8)
	}
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

func findRuntimeDir() finding {
	dir, err := state.RuntimeDir()
	if err != nil {
		return finding{"sockets", err.Error(), "set XDG_RUNTIME_DIR to a folder of yours with mode 0700"}
	}
	return finding{"sockets", dir, ""}
}

func findState() finding {
	dir, err := state.Home()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return finding{"state", err.Error(), "set TFCLUSTER_HOME to a folder that can be written"}
	}
	return finding{"state", dir, ""}
}

package verbs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
)

const (
	// maxProgram is the maximum size of a program: a larger one contains data by mistake.
	maxProgram = 1 << 30
	// bigCapture is the size from which a captured global is reported.
	bigCapture = 10 << 20
	// maxScript is the maximum size of a script.
	maxScript = 16 << 20
)

// pickled is the shim's answer to "program" and "args".
type pickled struct {
	Captured []capture `json:"captured"`
	Module   string    `json:"module"`
	Qualname string    `json:"qualname"`

	pickle, modules []byte // nil: the answer has none
}

// Receive implements bridge.Receiver.
func (p *pickled) Receive(name string, data []byte) {
	switch name {
	case "pickle":
		p.pickle = data
	case "modules":
		p.modules = data
	}
}

// errOtherShim is the error of an answer in the form of another version, without contents.
var errOtherShim = errors.New("the notebook's Python has loaded another version of the package tfcluster: " +
	"restart the kernel; if that does not help, install the same version there")

// capture is a global variable that is pickled with a program.
type capture struct {
	Name  string `json:"name"`
	Bytes uint64 `json:"bytes"`
}

// program returns the current program of a start: the notebook's function, the script on disk
// or the cell's body, with the modules that it imports. It returns nil if every role has a
// command of its own.
func (inv *invocation) program(ctx context.Context, r *clusterpb.ReserveRequest) (*clusterpb.Program, error) {
	var p *clusterpb.Program
	var err error
	file, function, isScript := scriptName(inv.Program)
	pyFiles := r.GetPyFiles()
	switch {
	case inv.Program == "" && !inv.HasCell:
		if !cluster.CommandsOnly(r.GetRoles()) {
			return nil, command.Usagef(inv.Verb, "the program is missing: %s", inv.Verb.Synopsis())
		}
		return nil, nil
	case !inv.HasCell && r.GetFramework() == cluster.Plain && inv.isCommand(file):
		if inv.Has("args") {
			return nil, command.Usagef(inv.Verb, "--args is for Python programs, and %s is a command: "+
				"write its arguments after it", command.Shorten(inv.Program, 60))
		}
		return &clusterpb.Program{
			Kind: clusterpb.Program_COMMAND, Name: inv.Program, Words: append([]string{inv.Program}, inv.Words...),
		}, nil
	case inv.HasCell:
		p = &clusterpb.Program{Kind: clusterpb.Program_CELL, Name: inv.cellName(), Body: blob([]byte(inv.Cell))}
		err = inv.modules(ctx, p, inv.Cell, "", pyFiles)
	case isScript:
		p, err = inv.script(ctx, file, function, pyFiles)
	case command.IsIdentifier(inv.Program):
		p, err = inv.function(ctx, pyFiles)
	default:
		return nil, command.Usagef(inv.Verb, "program %q: want a function's name, a script (train.py, "+
			"train.py:function) or a path", command.Shorten(inv.Program, 60))
	}
	if err != nil {
		return nil, err
	}
	p.Words = inv.Words
	if name := inv.Text("args"); name != "" {
		var args pickled
		err := bridge.Ask(ctx, inv.py, bridge.ProgramTimeout, "args", map[string]any{"name": name}, &args)
		if err == nil && args.pickle == nil {
			err = errOtherShim
		}
		if err != nil {
			return nil, inv.cannot("take --args "+name, err)
		}
		p.Args = blob(args.pickle)
	}
	return p, nil
}

// cellName returns the name of the cell whose body is started, as in tracebacks if the front
// end numbers cells.
func (inv *invocation) cellName() string {
	if c, ok := inv.out.(interface{ ExecutionCount() int }); ok && c.ExecutionCount() > 0 {
		return fmt.Sprintf("Cell In[%d]", c.ExecutionCount())
	}
	return "cell"
}

// isCommand returns whether a program of a cluster without a framework is a command, not a
// Python script or a function of the notebook.
func (inv *invocation) isCommand(file string) bool {
	return !strings.HasSuffix(file, ".py") && (inv.py == nil || !command.IsIdentifier(inv.Program))
}

// scriptName splits train.py:function. A word is a script if it ends in .py or contains a
// slash.
func scriptName(word string) (file, function string, ok bool) {
	if i := strings.LastIndex(word, ".py:"); i >= 0 && command.IsIdentifier(word[i+4:]) {
		return word[:i+3], word[i+4:], true
	}
	return word, "", strings.HasSuffix(word, ".py") || strings.Contains(word, "/")
}

func blob(data []byte) *clusterpb.Blob {
	if len(data) == 0 {
		return nil
	}
	return &clusterpb.Blob{Data: data, Size: int64(len(data))}
}

func (inv *invocation) script(ctx context.Context, file, function string,
	pyFiles []string,
) (*clusterpb.Program, error) {
	path := Absolute(inv.workingDir(ctx), file)
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, command.Usagef(inv.Verb, "%v", statError("script ", path, err))
	case fi.IsDir():
		return nil, command.Usagef(inv.Verb, "%s is a folder: name a script in it", path)
	case fi.Size() > maxScript:
		return nil, command.Usagef(inv.Verb, "%s has %s, but a script has at most %s: name the file of the program", path,
			render.BytesText(uint64(fi.Size())), render.BytesText(uint64(maxScript)))
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the program: %w", err)
	}
	name := filepath.Base(file)
	if function != "" {
		name += ":" + function
	}
	p := &clusterpb.Program{Kind: clusterpb.Program_SCRIPT, Name: name, Body: blob(text), Function: function, Path: path}
	if p.Body == nil {
		return nil, command.Usagef(inv.Verb, "the script %s is empty: save the program in it", path)
	}
	return p, inv.modules(ctx, p, "", path, pyFiles)
}

// modules adds the modules that a text or script imports.
func (inv *invocation) modules(ctx context.Context, p *clusterpb.Program, source, path string, pyFiles []string) error {
	if inv.py == nil {
		return nil // on the command line tasks find them beside the script
	}
	var got pickled
	args := map[string]any{"source": source, "path": path, "py_files": pyFiles, "max_bytes": maxProgram}
	err := bridge.Ask(ctx, inv.py, bridge.ProgramTimeout, "modules", args, &got)
	if err == nil && got.modules == nil {
		err = errOtherShim
	}
	if err != nil {
		return inv.cannot("collect the modules of "+p.GetName(), err)
	}
	p.Modules = blob(got.modules)
	return nil
}

func (inv *invocation) function(ctx context.Context, pyFiles []string) (*clusterpb.Program, error) {
	var got pickled
	args := map[string]any{"name": inv.Program, "py_files": pyFiles, "max_bytes": maxProgram, "big": bigCapture}
	err := bridge.Ask(ctx, inv.py, bridge.ProgramTimeout, "program", args, &got)
	if err == nil && (got.pickle == nil || got.modules == nil) {
		err = errOtherShim
	}
	if err != nil {
		return nil, inv.cannot("take "+inv.Program, err)
	}
	for _, c := range got.Captured {
		inv.out.Stderr(fmt.Sprintf("warning: %s captures the notebook's %s (%s), which is sent to every task: "+
			"load it in the program instead\n", inv.Program, c.Name, render.BytesText(c.Bytes)))
	}
	name := cmp.Or(got.Qualname, inv.Program)
	return &clusterpb.Program{
		Kind: clusterpb.Program_FUNCTION, Name: name, Body: blob(got.pickle), Modules: blob(got.modules),
	}, nil
}

// cannot returns why the notebook's objects cannot be read.
func (inv *invocation) cannot(what string, err error) error {
	var pe *bridge.PythonError
	switch {
	case errors.As(err, &pe):
		return command.Usagef(inv.Verb, "%s", pe.Error())
	case errors.Is(err, bridge.ErrNoPython) && inv.session.Options.Shell:
		return command.Usagef(inv.Verb,
			"cannot %s: a shell has no names of a notebook; give a script (train.py), or with --framework none a command", what)
	}
	return fmt.Errorf("cannot %s: %w", what, err)
}

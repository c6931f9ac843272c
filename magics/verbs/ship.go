package verbs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/ship"
	"github.com/tfcluster/tfcluster/magics/command"
)

// unpackMark is the suffix of a value of --files that is to be unpacked.
const unpackMark = "#archive"

// shipping checks --venv, --py-files and --files as far as possible on this machine, and adds
// those that executors cannot read to the request for transfer. With an engine of this host,
// tasks run here.
func (inv *invocation) shipping(req *clusterpb.ReserveRequest, engine cluster.Engine, base string) error {
	for _, p := range inv.Texts("py-files") {
		p = Absolute(base, p)
		if _, err := os.Stat(p); err != nil {
			return command.Usagef(inv.Verb, "--py-files: %v", statError("", p, err))
		}
		req.PyFiles = append(req.PyFiles, p)
	}
	files, venv := inv.shipFiles, inv.shipVenv
	if engine.OnThisHost {
		files, venv = inv.localFiles, inv.localVenv
	}
	if err := files(req, base); err != nil {
		return err
	}
	given := inv.Text("venv")
	switch {
	case given == "":
		return nil
	case inv.Has("python"):
		return command.Usagef(inv.Verb, "--venv and --python exclude each other, because an environment brings its "+
			"interpreter: give one of them, on the line or in a configuration file")
	}
	return venv(req, base, given)
}

// statError returns why a path cannot be used, from the error of Stat; what is its kind, such as "script ", or "".
func statError(what, path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no %s%s", what, path)
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err
	}
	return fmt.Errorf("%s%s cannot be read: %w", what, path, err)
}

// localFiles checks --files that tasks read directly.
func (inv *invocation) localFiles(req *clusterpb.ReserveRequest, base string) error {
	for _, given := range inv.Texts("files") {
		path, _, _ := strings.Cut(given, "#")
		path, name, renamed := strings.Cut(path, "::")
		p := Absolute(base, path)
		if _, err := os.Stat(p); err != nil {
			return command.Usagef(inv.Verb, "--files: %v", statError("", p, err))
		}
		if renamed && Absolute(base, name) != p {
			return command.Usagef(inv.Verb, "--files %s: with --backend local, tasks read each file at its own path, "+
				"so a file cannot get another name: leave ::%s out, or make a link with that name", given, name)
		}
		req.Files = append(req.Files, p)
	}
	return nil
}

// shipFiles adds the files to transfer.
func (inv *invocation) shipFiles(req *clusterpb.ReserveRequest, base string) error {
	var names []string
	for _, given := range inv.Texts("files") {
		f, err := givenFile(given, base)
		if err != nil {
			return command.Usagef(inv.Verb, "--files %s: %v", given, err)
		}
		names = append(names, f.GetName())
		req.Ship, req.Files = append(req.Ship, f), append(req.Files, given)
	}
	if err := ship.CheckNames(names); err != nil {
		return command.Usagef(inv.Verb, "--files: %v: PATH::NAME gives one of them another name", err)
	}
	return nil
}

// givenFile parses PATH[::NAME][#archive].
func givenFile(given, base string) (*clusterpb.GivenFile, error) {
	rest, unpack := strings.CutSuffix(given, unpackMark)
	path, name, renamed := strings.Cut(rest, "::")
	f := &clusterpb.GivenFile{
		Path: Absolute(base, path), Name: strings.TrimSuffix(filepath.ToSlash(name), "/"), Unpack: unpack,
	}
	info, err := os.Stat(f.GetPath())
	switch {
	case err != nil:
		return nil, statError("", f.GetPath(), err)
	case unpack && info.IsDir():
		return nil, errors.New("a folder is copied as it is, not unpacked: leave " + unpackMark + " out")
	case !info.IsDir() && info.Size() > ship.MaxFile:
		return nil, ship.TooLarge(info.Size(), ship.MaxFile)
	}
	own, err := ship.NameOf(f.GetPath(), unpack)
	if err != nil {
		return nil, err
	}
	if !renamed {
		f.Name = own
	}
	return f, ship.CheckName(f.GetName())
}

// shipVenv adds the environment to transfer.
func (inv *invocation) shipVenv(req *clusterpb.ReserveRequest, base, given string) error {
	path := Absolute(base, given)
	if given == "." {
		if path = environmentOf(inv.session.Options.Python); path == "" {
			return command.Usagef(inv.Verb, "--venv .: Python %s is not in an environment (venv, conda): "+
				"give the folder or the archive of one", inv.session.Options.Python)
		}
	}
	if err := ship.CheckEnvironment(path); err != nil {
		return command.Usagef(inv.Verb, "--venv %s: %v", given, err)
	}
	req.Venv, req.ShipEnvironment = path, path
	return nil
}

// environmentOf returns the folder of an interpreter's virtual or conda environment; "" if it
// has none.
func environmentOf(python string) string {
	path, err := exec.LookPath(python) // in a shell it is a name
	if err != nil {
		return ""
	}
	dir := filepath.Dir(filepath.Dir(path))
	for _, mark := range []string{"pyvenv.cfg", "conda-meta"} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			return dir
		}
	}
	return ""
}

// localVenv checks --venv that tasks use directly.
func (inv *invocation) localVenv(req *clusterpb.ReserveRequest, base, given string) error {
	if given == "." {
		return nil // the notebook's interpreter is of that environment
	}
	dir := Absolute(base, given)
	python := filepath.Join(dir, "bin", "python")
	fi, err := os.Stat(dir)
	if err != nil {
		return command.Usagef(inv.Verb, "--venv: %v", statError("", dir, err))
	}
	if !fi.IsDir() {
		return command.Usagef(inv.Verb, "--venv %s: that is a file; on local, name the folder of an environment (unpack an "+
			"archive first), or an interpreter with --python", given)
	}
	if _, err := os.Stat(python); errors.Is(err, fs.ErrNotExist) {
		return command.Usagef(inv.Verb, "--venv %s: the folder has no bin/python, so it is no environment: "+
			"name one that python -m venv or conda made", given)
	} else if err != nil {
		return command.Usagef(inv.Verb, "--venv: %v", statError("", python, err))
	}
	req.Venv, req.Python = dir, python
	return nil
}

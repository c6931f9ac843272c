package jupyterext

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// The built extension is committed, so that neither build nor install needs Node.
//
//go:embed all:labextension
var labextension embed.FS

//go:embed kernelspec
var kernelspec embed.FS

// Names below Jupyter's data folder.
const (
	extensionName = "tfcluster-lab"
	kernelName    = "tfcluster"
	stagingPrefix = ".tfcluster-staging-"
)

// Target has Jupyter's folders: Data for kernels and labextensions, Config for the server's configuration.
type Target struct {
	Data   string
	Config string
}

// elsewhere is what to do where a folder cannot be written.
const elsewhere = "make the folder writable, or install with --user, --sys-prefix or --prefix DIR"

// UserTarget returns the folders that any Jupyter reads for this user.
func UserTarget() (Target, error) {
	t := Target{Data: os.Getenv("JUPYTER_DATA_DIR"), Config: os.Getenv("JUPYTER_CONFIG_DIR")}
	home, err := os.UserHomeDir()
	if err != nil && (t.Data == "" || t.Config == "") {
		return Target{}, fmt.Errorf(
			"the folders of Jupyter are below the home folder: %w; set HOME, or give --sys-prefix or --prefix DIR", err)
	}
	if t.Config == "" {
		t.Config = filepath.Join(home, ".jupyter")
	}
	switch share := os.Getenv("XDG_DATA_HOME"); {
	case t.Data != "":
	case runtime.GOOS == "darwin":
		t.Data = filepath.Join(home, "Library", "Jupyter")
	case share != "":
		t.Data = filepath.Join(share, "jupyter")
	default:
		t.Data = filepath.Join(home, ".local", "share", "jupyter")
	}
	return t, nil
}

// PrefixTarget returns the folders of a Jupyter that is installed below dir (Python's sys.prefix); any
// Jupyter reads those of /usr/local.
func PrefixTarget(dir string) Target {
	return Target{Data: filepath.Join(dir, "share", "jupyter"), Config: filepath.Join(dir, "etc", "jupyter")}
}

// Install writes the extension, the kernelspec and the server's entry, and replaces those of an earlier
// install. binary is the absolute path of tfcluster, kernelJSON the content of kernel.json. A running
// JupyterLab shows the kernel and the extension after the page is reloaded; for the entry the server must
// be restarted.
func (t Target) Install(binary string, kernelJSON []byte) error {
	if err := t.removeStaging(); err != nil {
		return err
	}
	if err := t.replaceFolder(filepath.Join("labextensions", extensionName), func(dir string) error {
		return unpack(labextension, "labextension", dir)
	}); err != nil {
		return fmt.Errorf("install the JupyterLab extension: %w; %s", err, elsewhere)
	}
	if err := t.replaceFolder(filepath.Join("kernels", kernelName), func(dir string) error {
		if err := unpack(kernelspec, "kernelspec", dir); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "kernel.json"), kernelJSON, 0o644)
	}); err != nil {
		return fmt.Errorf("install the kernelspec: %w; %s", err, elsewhere)
	}
	if err := (serverConfig{t.Config}).add(binary); err != nil {
		return fmt.Errorf("register TensorBoard at jupyter-server-proxy: %w", err)
	}
	return nil
}

// Uninstall removes the files that Install wrote, if there are any.
func (t Target) Uninstall() error {
	err := errors.Join(
		t.removeStaging(),
		os.RemoveAll(filepath.Join(t.Data, "labextensions", extensionName)),
		os.RemoveAll(filepath.Join(t.Data, "kernels", kernelName)),
		serverConfig{t.Config}.remove(),
	)
	if err != nil {
		return fmt.Errorf("uninstall from Jupyter: %w; correct this and uninstall again", err)
	}
	for _, dir := range []string{
		filepath.Join(t.Data, "labextensions"), filepath.Join(t.Data, "kernels"), t.Data, t.Config,
	} {
		_ = os.Remove(dir) // removes it only if it is empty
	}
	return nil
}

// removeStaging removes the files of an interrupted install.
func (t Target) removeStaging() error {
	left, _ := os.ReadDir(t.Data) // a folder that is not there or cannot be read is named when it is written to
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), stagingPrefix) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(t.Data, e.Name())); err != nil {
			return fmt.Errorf("remove the files of an interrupted install: %w; remove them by hand and install again", err)
		}
	}
	return nil
}

// replaceFolder replaces a folder of the data folder: fill writes the new one in a staging folder, which
// Jupyter does not read, and the new one is then renamed.
func (t Target) replaceFolder(name string, fill func(dir string) error) error {
	final := filepath.Join(t.Data, name)
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return err
	}
	staging, err := os.MkdirTemp(t.Data, stagingPrefix)
	if err != nil {
		return err
	}
	defer os.RemoveAll(staging)
	fresh, old := filepath.Join(staging, "new"), filepath.Join(staging, "old")
	if err := os.Mkdir(fresh, 0o755); err != nil {
		return err
	}
	if err := fill(fresh); err != nil {
		return err
	}
	if err := os.Rename(final, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(fresh, final); err != nil {
		_ = os.Rename(old, final) // the first error is returned
		return err
	}
	return nil
}

// unpack writes the folder root of an embedded tree to dir.
func unpack(tree embed.FS, root, dir string) error {
	sub, err := fs.Sub(tree, root)
	if err != nil {
		return err
	}
	return os.CopyFS(dir, sub)
}

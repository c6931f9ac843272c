package jupyterext

import (
	"bytes"
	"os"
	"path/filepath"
)

// launcherFile is in the kernelspec that pip installs from the wheel, and not in the one that Install writes.
const launcherFile = "launch.py"

// FromWheel reports that pip installed the kernelspec.
func (t Target) FromWheel() bool {
	_, err := os.Stat(filepath.Join(t.Data, "kernels", kernelName, launcherFile))
	return err == nil
}

// Prefix returns the folder below which the data is, that of an environment or such as ~/.local.
func (t Target) Prefix() string { return filepath.Dir(filepath.Dir(t.Data)) }

// Written returns what Install wrote here: folders, and the file with the server's entry.
func (t Target) Written() []string {
	var found []string
	for _, path := range []string{
		filepath.Join(t.Data, "kernels", kernelName), filepath.Join(t.Data, "labextensions", extensionName),
	} {
		if _, err := os.Stat(path); err == nil && !t.FromWheel() {
			found = append(found, path)
		}
	}
	config := serverConfig{t.Config}
	if text, err := os.ReadFile(config.pythonFile()); err == nil && bytes.Contains(text, []byte(blockBegin)) {
		found = append(found, config.pythonFile())
	}
	return found
}

// RemoveWritten removes what Install wrote, and nothing that pip installed.
func (t Target) RemoveWritten() error {
	if t.FromWheel() {
		return serverConfig{t.Config}.remove()
	}
	return t.Uninstall()
}

package jupyterext

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// serverConfig is a folder with Jupyter server's configuration.
//
// The server reads ServerProxy.servers from its configuration files only, not from the folder
// jupyter_server_config.d, which is for lists of extensions. A JSON value replaces those of folders with
// lower precedence, including the system's entries; update() in Python adds to them. So the entry is
// written to a marked block of the Python file, and also to the JSON file if that has servers, which would
// hide the block.
type serverConfig struct{ dir string }

const (
	proxyName  = "tfcluster" // the path below the base URL
	blockBegin = "# >>> tfcluster: written by \"tfcluster install\", removed by \"tfcluster uninstall\" >>>\n"
	blockEnd   = "# <<< tfcluster <<<\n"
)

func (c serverConfig) pythonFile() string { return filepath.Join(c.dir, "jupyter_server_config.py") }

func (c serverConfig) jsonFile() string { return filepath.Join(c.dir, "jupyter_server_config.json") }

// proxyEntry configures how jupyter-server-proxy starts and reaches the broker. Its fields are those of
// jupyter_server_proxy.config.ServerProcess.
type proxyEntry struct {
	Command       []string      `json:"command"`
	UnixSocket    bool          `json:"unix_socket"`
	AbsoluteURL   bool          `json:"absolute_url"`
	Timeout       int           `json:"timeout"` // seconds
	LauncherEntry launcherEntry `json:"launcher_entry"`
}

type launcherEntry struct {
	Enabled bool `json:"enabled"`
}

func newProxyEntry(binary string) ([]byte, error) {
	// jupyter-server-proxy formats the arguments, so braces in the path must be doubled.
	path := strings.NewReplacer("{", "{{", "}", "}}").Replace(binary)
	return json.Marshal(proxyEntry{
		Command:    []string{path, "broker", "--socket", "{unix_socket}"},
		UnixSocket: true,
		Timeout:    20,
	})
}

// add writes the entry, and replaces an earlier one.
func (c serverConfig) add(binary string) error {
	value, err := newProxyEntry(binary)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.dir, 0o755); err != nil {
		return err
	}
	if err := c.editJSON(value); err != nil {
		return err
	}
	literal, err := json.Marshal(string(value)) // a JSON string is also a valid Python string
	if err != nil {
		return err
	}
	return c.editPython(blockBegin +
		"c = get_config()  # noqa: F821\n" +
		fmt.Sprintf("c.ServerProxy.servers.update({%q: __import__(\"json\").loads(%s)})\n", proxyName, literal) +
		blockEnd)
}

// remove removes the entry, and files that are empty without it.
func (c serverConfig) remove() error {
	return errors.Join(c.editPython(""), c.editJSON(nil))
}

// editPython replaces the file's block, or appends the block.
func (c serverConfig) editPython(block string) error {
	text, err := os.ReadFile(c.pythonFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, rest, found := bytes.Cut(text, []byte(blockBegin))
	_, after, ended := bytes.Cut(rest, []byte(blockEnd))
	if found && !ended {
		return fmt.Errorf("%s has the line %q, but not %q after it: remove tfcluster's lines by hand, "+
			"then repeat the command", c.pythonFile(), strings.TrimSpace(blockBegin), strings.TrimSpace(blockEnd))
	}
	if len(before) > 0 && before[len(before)-1] != '\n' {
		before = append(bytes.Clone(before), '\n')
	}
	edited := bytes.Join([][]byte{before, after}, []byte(block))
	switch {
	case bytes.Equal(edited, text), !found && block == "":
		return nil
	case len(bytes.TrimSpace(edited)) == 0:
		return os.Remove(c.pythonFile())
	}
	return replaceFile(c.pythonFile(), edited)
}

// editJSON sets the entry in a file that has servers; if value is nil, it deletes the entry.
func (c serverConfig) editJSON(value json.RawMessage) error {
	text, err := os.ReadFile(c.jsonFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var file, proxy, servers map[string]json.RawMessage
	if err := json.Unmarshal(text, &file); err != nil {
		return fmt.Errorf("%s is not JSON (%w): correct the file, then repeat the command", c.jsonFile(), err)
	}
	if err := unmarshalOptional(file["ServerProxy"], &proxy); err != nil {
		return fmt.Errorf("%s: ServerProxy %w: correct the file, then repeat the command", c.jsonFile(), err)
	}
	if err := unmarshalOptional(proxy["servers"], &servers); err != nil {
		return fmt.Errorf("%s: ServerProxy.servers %w: correct the file, then repeat the command", c.jsonFile(), err)
	}
	if _, had := servers[proxyName]; servers == nil || value == nil && !had {
		return nil
	}
	if value == nil {
		delete(servers, proxyName)
	} else {
		servers[proxyName] = value
	}
	if proxy["servers"], err = json.Marshal(servers); err != nil {
		return err
	}
	if file["ServerProxy"], err = json.Marshal(proxy); err != nil {
		return err
	}
	edited, err := json.MarshalIndent(file, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(c.jsonFile(), append(edited, '\n'))
}

// unmarshalOptional decodes an object that may be missing.
func unmarshalOptional(raw json.RawMessage, v any) error {
	if raw == nil {
		return nil
	}
	if json.Unmarshal(raw, v) != nil {
		return fmt.Errorf("is %.40s, and must be an object, { … }", raw)
	}
	return nil
}

// replaceFile replaces a file by renaming a temporary one. It follows a symbolic link and keeps the file's
// mode.
func replaceFile(path string, data []byte) error {
	mode := fs.FileMode(0o644)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		mode = info.Mode().Perm()
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".tfcluster-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Chmod(mode), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

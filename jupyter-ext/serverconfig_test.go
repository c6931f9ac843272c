package jupyterext

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestServerConfigKeepsOthers(t *testing.T) {
	t.Parallel()
	const (
		python = "jupyter_server_config.py"
		json   = "jupyter_server_config.json"
	)
	tests := map[string]struct {
		before, after map[string]string // after: after uninstalling
		inJSON        bool              // the entry is in the JSON file, too
	}{
		"nothing": {},
		"a Python file": {
			before: map[string]string{python: "c.ServerApp.port = 1\n"},
			after:  map[string]string{python: "c.ServerApp.port = 1\n"},
		},
		"a Python file without a last newline": {
			before: map[string]string{python: "c.ServerApp.port = 1"},
			after:  map[string]string{python: "c.ServerApp.port = 1\n"},
		},
		"a JSON file without servers": {
			before: map[string]string{json: `{"ServerApp":{"port":1}}`},
			after:  map[string]string{json: `{"ServerApp":{"port":1}}`},
		},
		"a JSON file with servers": {
			before: map[string]string{json: `{"ServerProxy":{"servers":{"r":{"command":["r"]}},"x":12345678901234567890}}`},
			after: map[string]string{json: `{
  "ServerProxy": {
    "servers": {
      "r": {
        "command": [
          "r"
        ]
      }
    },
    "x": 12345678901234567890
  }
}
`},
			inJSON: true,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serverConfig{t.TempDir()}
			for name, text := range tt.before {
				if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, binary := range []string{"/old/tfcluster", "/new/tfcluster"} {
				if err := c.add(binary); err != nil {
					t.Fatal(err)
				}
			}
			got := files(t, c.dir)
			if n := strings.Count(got[python], "/new/tfcluster"); n != 1 || strings.Contains(got[python], "/old") {
				t.Errorf("the Python file contains the new binary %d times:\n%s", n, got[python])
			}
			if has := strings.Contains(got[json], "/new/tfcluster"); has != tt.inJSON {
				t.Errorf("the entry is in the JSON file: %t, want %t:\n%s", has, tt.inJSON, got[json])
			}
			for name, text := range tt.before {
				if info, err := os.Stat(filepath.Join(c.dir, name)); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("%s lost its mode: %v, %v", name, info.Mode(), err)
				}
				if name == python && !strings.HasPrefix(got[name], text) {
					t.Errorf("%s lost its contents:\n%s", name, got[name])
				}
			}
			for range 2 {
				if err := c.remove(); err != nil {
					t.Fatal(err)
				}
			}
			left := files(t, c.dir)
			if len(left) != len(tt.after) {
				t.Errorf("left: %v", left)
			}
			for name, want := range tt.after {
				if left[name] != want {
					t.Errorf("%s is now\n%s\nwant\n%s", name, left[name], want)
				}
			}
		})
	}
}

func TestServerConfigRejects(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]struct{ file, text, want string }{
		"broken JSON":            {"jupyter_server_config.json", "{", "unexpected end"},
		"odd servers":            {"jupyter_server_config.json", `{"ServerProxy":{"servers":[]}}`, "ServerProxy.servers"},
		"a block without an end": {"jupyter_server_config.py", blockBegin + "c.x = 1\n", "remove tfcluster's lines by hand"},
		"a block without an end, " +
			"after other lines": {"jupyter_server_config.py", "a = 1\n" + blockBegin, "remove tfcluster's lines by hand"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serverConfig{t.TempDir()}
			path := filepath.Join(c.dir, in.file)
			if err := os.WriteFile(path, []byte(in.text), 0o644); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"add": c.add("/x"), "remove": c.remove()} {
				if err == nil || !strings.Contains(err.Error(), in.want) {
					t.Errorf("%s: error %v, want one with %q", what, err, in.want)
				}
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != in.text {
				t.Errorf("the file is now %q, %v", b, err)
			}
		})
	}
}

func TestServerConfigFollowsLinks(t *testing.T) {
	t.Parallel()
	c := serverConfig{t.TempDir()}
	real := filepath.Join(t.TempDir(), "dotfiles.py")
	if err := os.WriteFile(real, []byte("a = 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, c.pythonFile()); err != nil {
		t.Fatal(err)
	}
	if err := c.add("/opt/tfcluster"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(real); err != nil || !strings.Contains(string(b), "/opt/tfcluster") {
		t.Errorf("the linked file contains %q, %v", b, err)
	}
}

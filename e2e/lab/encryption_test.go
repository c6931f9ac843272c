package lab

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestEncryptedChannels: a JupyterLab that requires encrypted channels starts the kernel, before
// and after a restart with the same keys, which are in the private connection file only.
func TestEncryptedChannels(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: starts JupyterLab and a browser")
	}
	prefix := install(t)
	config := filepath.Join(prefix, "etc", "jupyter", "jupyter_server_config.json")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, []byte(`{"MappingKernelManager": {"transport_encryption": "required"}}`),
		0o644); err != nil {
		t.Fatal(err)
	}
	s := Start(t, prefix)
	runtimeDir := filepath.Join(s.Home, "runtime")
	// The cells look at the folder while the kernel runs.
	read := `import glob, json, os, stat
[file] = glob.glob(` + string(quoted(t, runtimeDir)) + ` + "/kernel-*.json")
info = json.load(open(file))
public, secret = info.get("curve_publickey", ""), info.get("curve_secretkey", "")
print(len(public), len(secret), oct(stat.S_IMODE(os.stat(file).st_mode)))`
	keep := "open('keys', 'w').write(info['curve_secretkey']); print('kept')"
	compare := read + "\nprint('same' if info['curve_secretkey'] == open('keys').read() else 'other', 'keys')"
	nb := s.WriteNotebook(t, "encrypted.ipynb", "tfcluster", read, keep, compare, "%tfcluster status", "'x' * 1_000_000")
	s.RunNotebook(t, nb, "run:0", "text:40 40 0o600", "run:1", "text:kept", "restart", "run:2", "text:same keys", "run:3",
		"idle", "run:4", "idle")
}

func quoted(t *testing.T, s string) []byte {
	t.Helper()
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

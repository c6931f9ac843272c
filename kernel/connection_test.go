package kernel_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/kernel"
)

// Ensure a connection file that cannot be served is refused in words.
func TestReadConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, want string
		is             error
	}{
		{name: "whole", in: `{"ip":"127.0.0.1","transport":"tcp","shell_port":1,"key":"k","signature_scheme":"hmac-sha256"}`},
		{name: "ipc", in: `{"ip":"/tmp/x","transport":"ipc","shell_port":1}`},
		{name: "curve", in: `{"transport":"tcp","curve_publickey":"abc"}`, is: kernel.ErrCurve, want: `transport_encryption to "disabled" or "auto"`},
		{name: "scheme", in: `{"transport":"tcp","signature_scheme":"hmac-md5"}`, want: "hmac-md5"},
		{name: "transport", in: `{"transport":"udp"}`, want: "udp"},
		{name: "no JSON", in: `ports`, want: "read connection file"},
	} {
		path := filepath.Join(t.TempDir(), "kernel.json")
		if err := os.WriteFile(path, []byte(tt.in), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := kernel.ReadConnection(path)
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", tt.name, err)
		case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
		case tt.is != nil && !errors.Is(err, tt.is):
			t.Errorf("%s: %v is not %v", tt.name, err, tt.is)
		}
	}
	if _, err := kernel.ReadConnection("/no/such/file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// Ensure a kernelspec is what was meant, and that nothing but it is left in its folder.
func TestWriteSpec(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "kernels", "tfcluster")
	for range 2 { // the second replaces the first
		if err := kernel.WriteSpec(dir, kernel.NewSpec("Python 3 (TFCluster)", []string{"/bin/x", "-f", "{connection_file}"}, nil)); err != nil {
			t.Fatal(err)
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "kernel.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got kernel.Spec
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if got.Language != "python" || got.InterruptMode != "message" || got.Metadata["debugger"] != true || got.Argv[0] != "/bin/x" {
		t.Errorf("%s", b)
	}
}

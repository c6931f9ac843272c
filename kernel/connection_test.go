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

// A key pair for tests only, of zmq.curve_keypair().
const (
	curvePublic = "KWFLfM)U>^DGp86rF8(!^njW9@GK+S=0B/*QvEbl"
	curveSecret = "@!5-SYROHDzJle7KCZT[@{7FUun@94>1Y=sWgq#2"
)

func curveFile(t *testing.T, public, secret string) string {
	t.Helper()
	b, err := json.Marshal(map[string]string{"transport": "tcp", "curve_publickey": public, "curve_secretkey": secret})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Ensure a connection file that is not supported is rejected with a clear error.
func TestReadConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in, want string
		is             error
	}{
		{name: "whole", in: `{"ip":"127.0.0.1","transport":"tcp","shell_port":1,"key":"k","signature_scheme":"hmac-sha256"}`},
		{name: "ipc", in: `{"ip":"/tmp/x","transport":"ipc","shell_port":1}`},
		{name: "curve", in: curveFile(t, curvePublic, curveSecret)},
		{name: "no curve", in: `{"transport":"tcp","curve_publickey":null,"curve_secretkey":null}`},
		{
			name: "curve without secret", in: curveFile(t, curvePublic, ""), is: kernel.ErrCurve,
			want: `its CURVE keys cannot be used: curve_publickey or curve_secretkey is missing`,
		},
		{
			name: "curve without public", in: curveFile(t, "", curveSecret), is: kernel.ErrCurve,
			want: `curve_publickey or curve_secretkey is missing`,
		},
		{name: "other pair", in: curveFile(t, curveSecret, curvePublic), is: kernel.ErrCurve, want: "does not belong"},
		{name: "number", in: `{"transport":"tcp","curve_secretkey":12345678}`, want: "read connection file"},
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
		case err != nil && (strings.Contains(err.Error(), curveSecret[1:9]) || strings.Contains(err.Error(), "12345678")):
			t.Errorf("%s: the error contains the key: %v", tt.name, err)
		case tt.is != nil && !errors.Is(err, tt.is):
			t.Errorf("%s: %v is not %v", tt.name, err, tt.is)
		}
	}
	if _, err := kernel.ReadConnection("/no/such/file"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

// TestSpec: kernel.json names the interpreter, the debugger and the encryption.
func TestSpec(t *testing.T) {
	t.Parallel()
	b, err := kernel.NewSpec("Python 3 (TFCluster)", []string{"/bin/x", "-f", "{connection_file}"}, nil).JSON()
	if err != nil {
		t.Fatal(err)
	}
	var got kernel.Spec
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if encryption, ok := got.Metadata["supported_encryption"].([]any); !ok || len(encryption) != 1 ||
		encryption[0] != "curve" {
		t.Errorf("supported_encryption: %s", b)
	}
	if got.Language != "python" || got.InterruptMode != "message" || got.Metadata["debugger"] != true ||
		got.Argv[0] != "/bin/x" {
		t.Errorf("%s", b)
	}
}

package state

import (
	"os"
	"testing"
)

// TestRuntimeDirOfAnotherHome: clusters in two state folders may have the same name; their
// sockets are in different folders, whichever variable sets the state folder.
func TestRuntimeDirOfAnotherHome(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "")
	for _, name := range []string{"TFCLUSTER_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, "")
	}
	seen := map[string]string{}
	for _, at := range []struct{ name, value string }{
		{"HOME", t.TempDir()}, {"HOME", t.TempDir()}, {"XDG_STATE_HOME", t.TempDir()}, {"XDG_STATE_HOME", t.TempDir()}, {"TFCLUSTER_HOME", t.TempDir()}, {"TFCLUSTER_HOME", t.TempDir()},
	} {
		t.Setenv(at.name, at.value)
		dir, err := RuntimeDir()
		if err != nil {
			t.Fatal(err)
		}
		if other, taken := seen[dir]; taken {
			t.Errorf("with %s=%s the socket folder is the same as with %s", at.name, at.value, other)
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		seen[dir] = at.name + "=" + at.value
	}
}

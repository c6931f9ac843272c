package state

import (
	"os"
	"path/filepath"
	"strings"
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
		{"HOME", t.TempDir()}, {"HOME", t.TempDir()}, {
			"XDG_STATE_HOME", t.TempDir(),
		}, {"XDG_STATE_HOME", t.TempDir()}, {"TFCLUSTER_HOME", t.TempDir()}, {"TFCLUSTER_HOME", t.TempDir()},
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

// TestSocketDir: every cluster name has a folder for its sockets, however long the path of the temporary
// folder is, and two names never share one.
func TestSocketDir(t *testing.T) {
	for _, name := range []string{"XDG_RUNTIME_DIR", "TFCLUSTER_HOME", "XDG_STATE_HOME"} {
		t.Setenv(name, "")
	}
	names := []string{"a", "local-1", strings.Repeat("n", 20), strings.Repeat("n", 63), strings.Repeat("n", 62) + "m"}
	for _, home := range []string{"", t.TempDir()} {
		t.Setenv("TFCLUSTER_HOME", home)
		for length := 5; length < 100; length++ {
			t.Setenv("TMPDIR", tempDirOf(t, length))
			seen := map[string]bool{}
			for _, name := range names {
				dir, err := SocketDir(name)
				if err != nil {
					t.Fatalf("TMPDIR of %d bytes, %s: %v", length, name, err)
				}
				if len(dir)+longestSocket > maxSocketPath || seen[dir] {
					t.Errorf("TMPDIR of %d bytes, %s: %s", length, name, dir)
				}
				seen[dir] = true
			}
		}
	}
}

// tempDirOf makes a folder whose path has a number of bytes.
func tempDirOf(t *testing.T, length int) string {
	t.Helper()
	root, err := os.MkdirTemp("/tmp", "") // t.TempDir's path is too long
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	dir := root
	if missing := length - len(dir) - len("/"); missing > 0 {
		dir = filepath.Join(dir, strings.Repeat("d", missing))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

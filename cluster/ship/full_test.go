package ship

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFullDisk: the error names the full disk and its host, and no partial files stay.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("missing: root, to mount a small file system")
	}
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1m", "none", dir).CombinedOutput(); err != nil {
		t.Skipf("missing: a small file system: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", "-l", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	s := &Environments{Dir: filepath.Join(dir, "environments"), Host: "host-a"}
	for name, size := range map[string]int{"while it is fetched": 2 << 20, "while it is unpacked": 600 << 10} {
		data := tarWith(t, map[string]string{"bin/python3.7": "", "lib/python3.7/x": strings.Repeat("x", size)})
		_, err := s.Take(t.Context(), ownOf(data), nil,
			func(_ context.Context, w io.Writer) error { _, err := w.Write(data); return err }, quiet)
		if err == nil || !strings.Contains(err.Error(), "on host-a: ") || !strings.Contains(err.Error(), s.Dir) ||
			!strings.HasSuffix(err.Error(), ": no space left on device") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the error is %v", name, err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(s.Dir, "*aside*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

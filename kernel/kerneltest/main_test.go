package kerneltest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// toyKernel builds the toy kernel, once for all tests, into the folder of TestMain.
var toyKernel = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(os.TempDir(), "toykernel")
	if out, err := exec.Command("go", "build", "-o", binary, "./toykernel").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the toy kernel: %w\n%s", err, out)
	}
	return binary, nil
})

// TestMain fails if a kernel left the folder of its child behind.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kerneltest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Setenv("TMPDIR", dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if left, _ := filepath.Glob(filepath.Join(dir, "tfcluster-kernel-*")); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "left behind:", left)
		code = 1
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

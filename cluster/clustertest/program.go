package clustertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programVar names the program under test, so that make builds it once for the tests of all packages.
const programVar = "TFCLUSTER_TEST_PROGRAM"

// Program returns the path of the program under test: $TFCLUSTER_TEST_PROGRAM, or one that the first call builds
// into a folder that Main removes. It skips the test in short mode, which has no tests of another process.
func Program(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("short: runs the program")
	}
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

var build = sync.OnceValues(func() (string, error) {
	if program := os.Getenv(programVar); program != "" {
		return program, nil
	}
	program := filepath.Join(folder, "tfcluster")
	cmd := exec.Command("go", "build", "-o", program, "github.com/tfcluster/tfcluster")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tfcluster: %w\n%s", err, out)
	}
	return program, nil
})

package kerneltest_test

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// Ensure this kernel passes every test of the protocol suite and of features.py that a plain
// ipykernel passes, with the same versions and clients.
func TestSuites(t *testing.T) {
	t.Parallel()
	python := kerneltest.Python(t)
	if err := exec.Command(python, "-c", "import jupyter_client").Run(); err != nil {
		t.Skip("no jupyter_client in " + python)
	}
	data := t.TempDir()
	binary := filepath.Join(data, "toykernel")
	if out, err := exec.Command("go", "build", "-o", binary, "./toykernel").CombinedOutput(); err != nil {
		t.Fatalf("build the toy kernel: %v\n%s", err, out)
	}
	for name, argv := range map[string][]string{
		"plain":  {python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"},
		"before": {binary, "{connection_file}", python},
	} {
		if err := kernel.WriteSpec(filepath.Join(data, "kernels", name), kernel.NewSpec(name, argv, nil)); err != nil {
			t.Fatal(err)
		}
	}
	for _, suite := range []string{"jkt.py", "features.py"} {
		t.Run(suite, func(t *testing.T) {
			t.Parallel()
			if err := exec.Command(python, "-c", "import jupyter_kernel_test").Run(); suite == "jkt.py" && err != nil {
				t.Skip("no jupyter_kernel_test in " + python)
			}
			plain, log := passed(t, python, data, suite, "plain")
			if len(plain) == 0 {
				t.Fatalf("ipykernel itself passes nothing:\n%s", log)
			}
			before, log := passed(t, python, data, suite, "before")
			for _, test := range slices.Sorted(maps.Keys(plain)) {
				if !before[test] {
					t.Errorf("%s passes on plain ipykernel, but not on this kernel:\n%s", test, log)
				}
			}
			t.Logf("%d of %d tests that pass on ipykernel", len(before), len(plain))
		})
	}
}

// suiteLimit is the timeout of a suite.
const suiteLimit = 4 * time.Minute

// result matches a line of unittest's verbose output; a test may print in between.
var result = regexp.MustCompile(`(?m)^(test_\w+) \([^)]*\)(?:\n[^\n]*)? \.\.\. (?:.*\n)*?.*?\b(ok|FAIL|ERROR|skipped)\b`)

// passed returns the tests that pass, and the output.
func passed(t *testing.T, python, data, suite, name string) (map[string]bool, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, suite, "-v")
	cmd.Dir = "testdata"
	cmd.Env = append(os.Environ(), "KERNEL="+name, "JUPYTER_PATH="+data, "IPYTHONDIR="+t.TempDir(), "JUPYTER_PLATFORM_DIRS=1")
	out, _ := cmd.CombinedOutput() // a failing test is not an error here
	set := make(map[string]bool)
	for _, m := range result.FindAllStringSubmatch(string(out), -1) {
		if m[2] == "ok" {
			set[m[1]] = true
		}
	}
	return set, strings.ToValidUTF8(string(out), "")
}

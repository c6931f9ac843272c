package kerneltest_test

import (
	"context"
	"errors"
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

// kernelspecs returns a Python with jupyter_client and a Jupyter data folder with the kernels
// plain, ipykernel, and before, this kernel. Without such a Python it skips the test.
func kernelspecs(t *testing.T) (python, data string) {
	t.Helper()
	python = kerneltest.Python(t)
	if err := exec.Command(python, "-c", "import jupyter_client").Run(); err != nil {
		t.Skip("no jupyter_client in " + python)
	}
	binary, err := toyKernel()
	if err != nil {
		t.Fatal(err)
	}
	data = t.TempDir()
	for name, argv := range map[string][]string{
		"plain":  {python, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"},
		"before": {binary, "{connection_file}", python},
	} {
		spec, err := kernel.NewSpec(name, argv, nil).JSON()
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(data, "kernels", name)
		if err := errors.Join(os.MkdirAll(dir, 0o755),
			os.WriteFile(filepath.Join(dir, "kernel.json"), spec, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return python, data
}

// encrypts reports whether a Python's jupyter_client and libzmq can encrypt kernel channels.
func encrypts(python string) bool {
	return exec.Command(python, "-c", "import zmq; from jupyter_client.manager import KernelManager; "+
		"KernelManager.transport_encryption; assert zmq.has('curve')").Run() == nil
}

// Ensure this kernel passes every test of the protocol suite and of features.py that a plain
// ipykernel passes, with the same versions and clients, in clear text and with encrypted
// channels.
func TestSuites(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: runs two suites three times each, on a kernel that is another process")
	}
	python, data := kernelspecs(t)
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
			for _, policy := range []string{"disabled", "required"} {
				if policy == "required" && !encrypts(python) {
					t.Log("jupyter_client is older than 8.9, or libzmq has no CURVE: not tried with encryption")
					continue
				}
				before, log := passed(t, python, data, suite, "before", "TRANSPORT_ENCRYPTION="+policy)
				for _, test := range slices.Sorted(maps.Keys(plain)) {
					if !before[test] {
						t.Errorf("encryption %s: %s passes on plain ipykernel, but not on this kernel:\n%s", policy, test, log)
					}
				}
				t.Logf("encryption %s: %d of %d tests that pass on ipykernel", policy, len(before), len(plain))
			}
		})
	}
}

// Ensure Jupyter's transport_encryption does what it says, as encryption.py has it.
func TestEncryption(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("short: runs a suite on a kernel that is another process")
	}
	python, data := kernelspecs(t)
	if !encrypts(python) {
		t.Skip("jupyter_client is older than 8.9, or libzmq has no CURVE")
	}
	ok, log := passed(t, python, data, "encryption.py", "before")
	if len(ok) != strings.Count(log, "(__main__.Encryption.test_") || len(ok) == 0 {
		t.Errorf("%d tests pass:\n%s", len(ok), log)
	}
}

// suiteLimit is the timeout of a suite.
const suiteLimit = 4 * time.Minute

// result matches a line of unittest's verbose output; a test may print in between.
var result = regexp.MustCompile(
	`(?m)^(test_\w+) \([^)]*\)(?:\n[^\n]*)? \.\.\. (?:.*\n)*?.*?\b(ok|FAIL|ERROR|skipped)\b`)

// passed returns the tests that pass, and the output.
func passed(t *testing.T, python, data, suite, name string, env ...string) (map[string]bool, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), suiteLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, python, suite, "-v")
	cmd.Dir = "testdata"
	cmd.Env = append(os.Environ(), "KERNEL="+name, "JUPYTER_PATH="+data, "IPYTHONDIR="+
		t.TempDir(), "JUPYTER_PLATFORM_DIRS=1")
	cmd.Env = append(cmd.Env, env...)
	out, _ := cmd.CombinedOutput() // a failing test is not an error here
	set := make(map[string]bool)
	for _, m := range result.FindAllStringSubmatch(string(out), -1) {
		if m[2] == "ok" {
			set[m[1]] = true
		}
	}
	return set, strings.ToValidUTF8(string(out), "")
}

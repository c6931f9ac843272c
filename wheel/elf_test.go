package wheel_test

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest/executable"
)

// newest is the C library that a wheel of this name needs: manylinux_2_17.
const newest = "GLIBC_2.17"

// newer reports that a symbol's version is of a newer C library than the wheel's name allows.
func newer(symbol string) bool {
	var major, minor, allowedMajor, allowedMinor int
	if n, _ := fmt.Sscanf(newest, "GLIBC_%d.%d", &allowedMajor, &allowedMinor); n != 2 {
		return true
	}
	if n, _ := fmt.Sscanf(symbol, "GLIBC_%d.%d", &major, &minor); n != 2 {
		return true // GLIBC_PRIVATE, or another library's
	}
	return major > allowedMajor || major == allowedMajor && minor > allowedMinor
}

func TestNewer(t *testing.T) {
	t.Parallel()
	for symbol, want := range map[string]bool{
		"GLIBC_2.2.5": false, "GLIBC_2.17": false, "GLIBC_2.18": true, "GLIBC_2.34": true, "GLIBC_3.0": true,
		"GLIBC_PRIVATE": true, "GCC_3.0": true,
	} {
		if got := newer(symbol); got != want {
			t.Errorf("newer(%s) is %v", symbol, got)
		}
	}
}

// checkProgram: the program needs a C library that is not newer than the wheel says, and no library of NVIDIA's
// before one of its functions is called.
func checkProgram(t *testing.T, program []byte, machine elf.Machine) {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != machine {
		t.Errorf("the program is for %v, want %v", f.Machine, machine)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range libraries {
		switch name {
		case "libc.so.6", "libpthread.so.0", "libdl.so.2", "libresolv.so.2", "libm.so.6", "ld-linux-aarch64.so.1":
		default:
			t.Errorf("the program needs %s", name)
		}
	}
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	versions, nvml := 0, 0
	for _, s := range symbols {
		if s.Version != "" && s.Section == elf.SHN_UNDEF {
			versions++
			if newer(s.Version) {
				t.Errorf("the program needs %s of %s: newer than %s", s.Name, s.Version, newest)
			}
		}
		if strings.HasPrefix(s.Name, "nvml") && s.Section == elf.SHN_UNDEF {
			nvml++
			if elf.ST_BIND(s.Info) != elf.STB_WEAK {
				t.Errorf("%s is not weak: the program cannot start without a driver", s.Name)
			}
		}
	}
	if versions == 0 || nvml == 0 {
		t.Errorf("the program has %d symbols of the C library and %d of NVML", versions, nvml)
	}
	if now, err := f.DynValue(elf.DT_FLAGS); err == nil && len(now) > 0 && elf.DynFlag(now[0])&elf.DF_BIND_NOW != 0 {
		t.Error("the program binds all functions when it starts: NVML's are not there then")
	}
}

// TestProgram reads the symbol versions of the program in the wheel.
func TestProgram(t *testing.T) {
	t.Parallel()
	checkProgram(t, read(t, open(t, wheel(t)), "/scripts/tfcluster"), elf.EM_X86_64)
}

// TestOtherMachine does so for the wheel for aarch64, which takes minutes to build: in make test-long.
func TestOtherMachine(t *testing.T) {
	t.Parallel()
	if os.Getenv("TFCLUSTER_TEST_WHEELS") == "" {
		t.Skip("long: TFCLUSTER_TEST_WHEELS=1, in make test-long")
	}
	path, err := build("..", t.TempDir(), "wheel", "aarch64")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(path, "-py3-none-manylinux_2_17_aarch64.whl") {
		t.Errorf("the wheel is %s", filepath.Base(path))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	checkProgram(t, read(t, open(t, b), "/scripts/tfcluster"), elf.EM_AARCH64)
}

// TestRelease: what make release builds needs no C library, on either machine: in make test-long.
func TestRelease(t *testing.T) {
	t.Parallel()
	if os.Getenv("TFCLUSTER_TEST_WHEELS") == "" {
		t.Skip("long: TFCLUSTER_TEST_WHEELS=1, in make test-long")
	}
	for arch, machine := range map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64} {
		program := filepath.Join(t.TempDir(), "tfcluster")
		cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, ".")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v\n%s", err, out)
		}
		f, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_INTERP {
				t.Errorf("the program for %s needs a dynamic linker", arch)
			}
		}
		if f.Machine != machine {
			t.Errorf("the program for %s is for %v", arch, f.Machine)
		}
		_ = f.Close() // it was read
	}
}

// driver is a library with the functions of NVML that list one GPU.
const driver = `
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)1; return 0; }
int nvmlDeviceGetUUID(void *device, char *text, unsigned size) { strncpy(text, "GPU-of-a-test", size); return 0; }
int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "Fake H200", size); return 0; }
int nvmlDeviceGetMemoryInfo(void *device, memory *m) { m->total = 100; m->free = 90; m->used = 10; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, void *rates) { return 3; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, void *list) { *count = 0; return 0; }
const char *nvmlErrorString(int code) { return "an error of the test"; }
`

// TestProgramOpensNVML: the program finds the driver's library when it runs, and starts where there is none.
func TestProgramOpensNVML(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := filepath.Join(dir, "tfcluster")
	executable.Write(t, program, read(t, open(t, wheel(t)), "/scripts/tfcluster"))
	run := func(libraries string) string {
		cmd := exec.CommandContext(t.Context(), program, "gpus", "--json")
		cmd.Env = append(os.Environ(), "PATH="+dir, "LD_LIBRARY_PATH="+libraries, "TFCLUSTER_HOME="+
			filepath.Join(dir, "home"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("tfcluster gpus: %v\n%s", err, out)
		}
		return string(out)
	}
	if _, err := os.Stat("/dev/nvidiactl"); err != nil {
		if out := run(""); strings.Contains(out, "GPU-") {
			t.Errorf("without a driver: %s", out)
		}
	}
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("missing: gcc")
	}
	source := filepath.Join(dir, "nvml.c")
	if err := os.WriteFile(source, []byte(driver), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), compiler, "-w", "-shared", "-fPIC", "-o",
		filepath.Join(dir, "libnvidia-ml.so.1"), source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	if out := run(dir); !strings.Contains(out, "GPU-of-a-test") || !strings.Contains(out, "Fake H200") {
		t.Errorf("with a driver: %s", out)
	}
}

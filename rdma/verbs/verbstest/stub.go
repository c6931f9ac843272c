//go:build (cgo || verbs) && (amd64 || arm64)

package verbstest

import (
	_ "embed" // testdata/stub.c
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/ebitengine/purego"
)

//go:embed testdata/stub.c
var source []byte

// Stub is the library. It is one per process, and its state is shared: tests with it are not parallel.
type Stub struct {
	Path string // for verbs.Open

	objects, registrations func() int32
	fail                   func(function string, errno int32)
	status, stall, down    func(int32)
	devices                func(n, iwarp int32)
	maxMessage             func(uint32)
}

var built = sync.OnceValues(build)

// ErrNoCompiler is the error of Missing on a machine without one.
var ErrNoCompiler = errors.New("missing: gcc")

// Missing returns why there is no stub, such as ErrNoCompiler.
func Missing() error {
	_, err := built()
	return err
}

func build() (*Stub, error) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		return nil, ErrNoCompiler
	}
	dir, err := os.MkdirTemp("", "verbstest")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir) // the library stays loaded
	file := filepath.Join(dir, "stub.c")
	if err := os.WriteFile(file, source, 0o600); err != nil {
		return nil, err
	}
	s := &Stub{Path: filepath.Join(dir, "libibverbs-stub.so.1")}
	out, err := exec.Command(compiler, "-O1", "-shared", "-fPIC", "-pthread", "-Wl,-soname,libibverbs-stub.so.1", "-o",
		s.Path, file).CombinedOutput()
	if err != nil {
		return nil, errors.New("gcc: " + string(out))
	}
	handle, err := purego.Dlopen(s.Path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, err
	}
	s.Path = "libibverbs-stub.so.1" // by its name, as a library that is loaded
	for name, f := range map[string]any{
		"stub_objects": &s.objects, "stub_registrations": &s.registrations, "stub_fail": &s.fail, "stub_status": &s.status,
		"stub_stall": &s.stall, "stub_devices": &s.devices, "stub_port_down": &s.down, "stub_max_message": &s.maxMessage,
	} {
		purego.RegisterLibFunc(f, handle, name)
	}
	return s, nil
}

// New returns the stub with one device and no faults. At the end of the test nothing more of it may be there than
// before: no device, no queue, and no memory that is registered. It skips the test where gcc is missing.
func New(t testing.TB) *Stub {
	t.Helper()
	s, err := built()
	if errors.Is(err, ErrNoCompiler) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.reset()
	objects, registrations := s.objects(), s.registrations()
	t.Cleanup(func() {
		s.reset()
		if o, r := s.objects()-objects, s.registrations()-registrations; o != 0 || r != 0 {
			t.Errorf("%d objects of libibverbs are left, and %d registrations of memory", o, r)
		}
	})
	return s
}

const everyMessage = 1 << 30

func (s *Stub) reset() {
	s.fail("", 0)
	s.status(0)
	s.stall(0)
	s.devices(1, 0)
	s.down(0)
	s.maxMessage(everyMessage)
}

// Registrations returns how many pieces of memory are registered.
func (s *Stub) Registrations() int { return int(s.registrations()) }

// Fail has a function fail from now on; "" none. "inline" is ibv_create_qp with inline data, "rtr" the change of a
// queue pair to RTR.
func (s *Stub) Fail(function string, errno syscall.Errno) { s.fail(function, int32(errno)) }

// FailNext has the next write complete with a status.
func (s *Stub) FailNext(status uint32) { s.status(int32(status)) }

// Stall keeps writes from being executed, as where the peer is gone, until it is called with false.
func (s *Stub) Stall(on bool) { s.stall(number(on)) }

// PortDown has the port be down.
func (s *Stub) PortDown(on bool) { s.down(number(on)) }

func number(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

// Devices sets the number of devices; -1: the list has one less than it says.
func (s *Stub) Devices(n int) { s.devices(int32(n), 0) }

// IWARP has the device be one of iWARP.
func (s *Stub) IWARP() { s.devices(1, 1) }

// MaxMessage sets the size in bytes up to which a write can be; 0: the device reports no limit, and has none.
func (s *Stub) MaxMessage(n uint32) { s.maxMessage(n) }

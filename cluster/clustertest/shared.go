package clustertest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Shared is what several tests of a package use and what takes long to start, such as an
// engine. The first test that asks for it starts it; Main ends it. It is safe for
// concurrent use, as far as T is.
type Shared[T any] struct {
	start   func(testing.TB) T
	once    sync.Once
	fixture fixture
	value   T
	started bool // value is there; set in once
}

// Share returns what start will start. The testing.TB that start gets ends after all tests:
// its Cleanup runs then, and its Errorf and Fatal fail the package.
func Share[T any](start func(testing.TB) T) *Shared[T] { return &Shared[T]{start: start} }

// Get starts it, or takes what another test started. It skips the test where start was
// skipped, and fails it where start failed.
func (s *Shared[T]) Get(t testing.TB) T {
	t.Helper()
	s.once.Do(func() {
		done := make(chan struct{})
		go func() { // start may end its goroutine by Fatal or Skip
			defer close(done)
			s.value = s.start(&s.fixture)
			s.started = true
		}()
		<-done
	})
	if !s.started {
		if s.fixture.Skipped() {
			t.Skip(s.fixture.said())
		}
		t.Fatalf("start what tests share: %s", s.fixture.said())
	}
	return s.value
}

// end ends it and tells whether it failed.
func (s *Shared[T]) end(testsFailed bool) bool {
	s.once.Do(func() {}) // nobody may start it any more
	return s.fixture.end(testsFailed)
}

// Main runs a package's tests and then ends what they shared. It returns the exit code.
//
// A test of clusters may wait for a minute. So that it holds up no others, one more runs in
// parallel than there are processors, unless -parallel says how many.
func Main(m *testing.M, shared ...interface{ end(testsFailed bool) bool }) int {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f != nil && f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(runtime.GOMAXPROCS(0) + 1)) // a number is taken
	}
	code := m.Run()
	for _, s := range shared {
		if s.end(code != 0) && code == 0 {
			code = 1
		}
	}
	return code
}

// fixture is a testing.TB for what outlives a test. It has the methods that starting an
// engine needs; the others panic.
type fixture struct {
	testing.TB

	mu          sync.Mutex
	cleanups    []func()        // guarded by mu
	lines       strings.Builder // what Fatal and Skip said; guarded by mu
	failed      bool            // guarded by mu
	skipped     bool            // guarded by mu
	testsFailed bool            // guarded by mu
}

func (f *fixture) end(testsFailed bool) bool {
	f.mu.Lock()
	f.testsFailed = testsFailed
	f.mu.Unlock()
	for {
		f.mu.Lock()
		n := len(f.cleanups)
		if n == 0 {
			failed := f.failed
			f.mu.Unlock()
			return failed
		}
		last := f.cleanups[n-1]
		f.cleanups = f.cleanups[:n-1]
		f.mu.Unlock()
		done := make(chan struct{})
		go func() { // it may end its goroutine by Fatal
			defer close(done)
			last()
		}()
		<-done
	}
}

func (f *fixture) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines.String()
}

func (f *fixture) say(failed, skipped bool, text string) {
	f.mu.Lock()
	f.failed, f.skipped = f.failed || failed, f.skipped || skipped
	if failed || skipped {
		f.lines.WriteString(text)
	}
	f.mu.Unlock()
	if !skipped {
		fmt.Fprintln(os.Stderr, text)
	}
}

func (f *fixture) Helper()      {}
func (f *fixture) Name() string { return "shared" }

func (f *fixture) Context() context.Context { return context.Background() }

func (f *fixture) Cleanup(c func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cleanups = append(f.cleanups, c)
}

func (f *fixture) TempDir() string {
	dir, err := os.MkdirTemp("", "tfcluster-shared")
	if err != nil {
		f.Fatalf("make a folder for what tests share: %v", err)
	}
	f.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			f.Errorf("remove the folder of what tests shared: %v", err)
		}
	})
	return dir
}

// Failed is true too once a test of the package has failed, so that logs are then shown.
func (f *fixture) Failed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed || f.testsFailed
}

func (f *fixture) Skipped() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.skipped
}

func (f *fixture) Log(args ...any)                 { f.say(false, false, fmt.Sprint(args...)) }
func (f *fixture) Logf(format string, args ...any) { f.say(false, false, fmt.Sprintf(format, args...)) }
func (f *fixture) Error(args ...any)               { f.say(true, false, fmt.Sprint(args...)) }

func (f *fixture) Errorf(format string, args ...any) {
	f.say(true, false, fmt.Sprintf(format, args...))
}

func (f *fixture) Fatal(args ...any) {
	f.Error(args...)
	runtime.Goexit()
}

func (f *fixture) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

func (f *fixture) Skip(args ...any) {
	f.say(false, true, fmt.Sprint(args...))
	runtime.Goexit()
}

func (f *fixture) Skipf(format string, args ...any) { f.Skip(fmt.Sprintf(format, args...)) }

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Shared is a value that several tests of a package use because it takes long to start, such as an engine.
// The first Get starts it; Main ends it. It is safe for concurrent use as far as T is.
type Shared[T any] struct {
	start   func(testing.TB) T
	once    sync.Once
	fixture fixture
	value   T
	started bool // value is set; written in once
}

// Share returns a Shared that calls start. The testing.TB of start lives until all tests have ended: then its
// Cleanup functions run, and its Errorf and Fatal fail the package.
func Share[T any](start func(testing.TB) T) *Shared[T] { return &Shared[T]{start: start} }

// Get returns the value, and starts it if no other test has. It skips the test if start was skipped, and
// fails the test if start failed.
func (s *Shared[T]) Get(t testing.TB) T {
	t.Helper()
	value, err := s.Start()
	switch {
	case errors.Is(err, ErrSkipped):
		t.Skip(s.fixture.messages())
	case err != nil:
		t.Fatal(err)
	}
	return value
}

// ErrSkipped is the error of Start if start was skipped, because something is missing on this machine.
var ErrSkipped = errors.New("skipped")

// Start is Get for programs that are not tests.
func (s *Shared[T]) Start() (T, error) {
	s.once.Do(func() {
		done := make(chan struct{})
		go func() { // start may end its goroutine with Fatal or Skip
			defer close(done)
			s.value = s.start(&s.fixture)
			s.started = true
		}()
		<-done
	})
	switch {
	case s.started:
		return s.value, nil
	case s.fixture.Skipped():
		return s.value, fmt.Errorf("%w: %s", ErrSkipped, s.fixture.messages())
	}
	return s.value, fmt.Errorf("start the shared fixture: %s", s.fixture.messages())
}

// End runs the cleanups and reports whether none has failed. Later calls of Get do not start the value.
func (s *Shared[T]) End(testsFailed bool) (ok bool) {
	s.once.Do(func() {})
	return !s.fixture.end(testsFailed)
}

// fixture is a testing.TB that outlives a test. It implements the methods that are needed to start an engine;
// the others panic.
type fixture struct {
	testing.TB

	mu          sync.Mutex
	cleanups    []func()        // guarded by mu
	lines       strings.Builder // messages of failures and skips; guarded by mu
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
		go func() { // it may end its goroutine with Fatal
			defer close(done)
			last()
		}()
		<-done
	}
}

func (f *fixture) messages() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.lines.String()
}

func (f *fixture) record(failed, skipped bool, text string) {
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
		f.Fatalf("make the shared fixture's folder: %v", err)
	}
	f.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			f.Errorf("remove the shared fixture's folder: %v", err)
		}
	})
	return dir
}

// Failed is also true after a test of the package has failed, so that logs are shown then.
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

func (f *fixture) Log(args ...any) { f.record(false, false, fmt.Sprint(args...)) }
func (f *fixture) Logf(format string, args ...any) {
	f.record(false, false, fmt.Sprintf(format, args...))
}
func (f *fixture) Error(args ...any) { f.record(true, false, fmt.Sprint(args...)) }

func (f *fixture) Errorf(format string, args ...any) {
	f.record(true, false, fmt.Sprintf(format, args...))
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
	f.record(false, true, fmt.Sprint(args...))
	runtime.Goexit()
}

func (f *fixture) Skipf(format string, args ...any) { f.Skip(fmt.Sprintf(format, args...)) }

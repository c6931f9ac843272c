package hosts

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// allVar is the environment variable that also runs the slow cases; make test-hosts sets it.
const allVar = "TFCLUSTER_TEST_LOST_HOSTS"

// jax returns the folder with JAX, or skips the test.
func jax(t testing.TB) string {
	t.Helper()
	folder, err := filepath.EvalSymlinks("../../.jax")
	if err != nil {
		t.Skipf("missing: JAX: make .jax/.done: %v", err)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		t.Fatal(err)
	}
	return folder
}

// atWork is the line of a program that has begun to work.
const atWork = "] at work"

// working waits until both tasks work, and returns the task on a host.
func (j *job) working(on string) string {
	j.s.t.Helper()
	j.sees("[worker:0] at work")
	j.sees("[worker:1] at work")
	for _, task := range []string{"worker:0", "worker:1"} {
		if j.host(task) == on {
			return task
		}
	}
	j.s.t.Fatalf("no task is on %s:\n%s", on, j)
	return ""
}

// silent is the cause of a run that a lost host ended.
func silent(task, host string) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`(?m)^.*%s on %s: silent for \d+ s: its host is down or cut off`, task, host))
}

// lostHost: the host that vanishes is named first as the cause, not the survivor whose collective call failed, and no
// advice is about the program.
func (s *site) lostHost(program string, options ...string) {
	s.t.Helper()
	lost := workers[0]
	j := s.run(program, options...)
	task := j.working(lost)
	began := time.Now()
	s.down(lost)
	code := j.ends()
	took := time.Since(began)
	s.Up(lost)
	text := j.String()
	s.t.Logf("after %.1f s: exit code %d\n%s", took.Seconds(), code, text[strings.LastIndex(text, atWork):])
	if !silent(task, lost).MatchString(text) || strings.Contains(text, "fix the program") {
		s.t.Error("the lost host is not the cause")
	}
	s.checkLeft()
}

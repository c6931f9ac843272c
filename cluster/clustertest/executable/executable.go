// Package executable writes programs for tests that run them.
package executable

import (
	"os"
	"syscall"
	"testing"
)

// Write writes a program that every user can run, and fails the test if it cannot.
//
// A process that another test starts meanwhile would inherit the open file until it calls exec, and the
// program could not be run in that time: "text file busy" (golang.org/issue/22315). The lock prevents this.
func Write[T string | []byte](t testing.TB, path string, content T) {
	t.Helper()
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

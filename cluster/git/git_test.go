package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestState: the commit and branch of a folder below a repository, changes of tracked files only, and folders without
// a commit.
func TestState(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	top := t.TempDir()
	folder := filepath.Join(top, "notebooks")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	do := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-C", top}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := State(t.Context(), folder); got != nil {
		t.Errorf("outside of a repository: %v", got)
	}
	do("init", "-q", "-b", "main")
	if got := State(t.Context(), folder); got != nil {
		t.Errorf("without a commit: %v", got)
	}
	write("a.py", "a")
	do("add", ".")
	do("commit", "-q", "-m", "a")
	write("untracked.py", "b")
	if got := State(t.Context(), folder); len(got.GetCommit()) != 40 || got.GetBranch() != "main" || got.GetDirty() {
		t.Errorf("committed: %v", got)
	}
	write("a.py", "changed")
	do("checkout", "-q", "--detach")
	if got := State(t.Context(), folder); got.GetBranch() != "" || !got.GetDirty() {
		t.Errorf("changed: %v", got)
	}
	if got := State(t.Context(), filepath.Join(top, "missing")); got != nil {
		t.Errorf("a missing folder: %v", got)
	}
}

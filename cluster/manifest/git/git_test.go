package git

import (
	"errors"
	"io/fs"
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

// TestForeignRepository: nothing that the configuration of a repository names is run.
func TestForeignRepository(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	for _, filter := range []string{"evil", "e=vil"} {
		top := t.TempDir()
		ran := filepath.Join(top, "ran")
		do := func(args ...string) {
			t.Helper()
			cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b", "-C", top}, args...)...)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, out)
			}
		}
		write := func(name, text string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		do("init", "-q", "-b", "main")
		write("a.py", "a")
		do("add", ".")
		do("commit", "-q", "-m", "a")
		write(".git/info/attributes", "* filter="+filter+"\n")
		write("evil.sh", "#!/bin/sh\ntouch "+ran+"\ncat\n")
		write(".git/hooks/post-index-change", "#!/bin/sh\ntouch "+ran+"\n")
		do("config", "core.fsmonitor", filepath.Join(top, "evil.sh"))
		for _, key := range []string{"clean", "smudge", "process"} {
			do("config", "filter."+filter+"."+key, filepath.Join(top, "evil.sh"))
		}
		do("config", "filter."+filter+".required", "true")
		if err := os.Remove(ran); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		write("a.py", "b")
		got := State(t.Context(), top)
		if _, err := os.Stat(ran); err == nil {
			t.Errorf("filter %s: git has run a program of the repository", filter)
		}
		if filter == "evil" && (got.GetBranch() != "main" || !got.GetDirty()) {
			t.Errorf("its state is %v", got)
		}
	}
}

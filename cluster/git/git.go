// Package git reads the state of the git repository that a folder is in.
package git

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// State returns the commit that is checked out in a folder and whether tracked files have changed since, which takes
// long in large repositories: it is undecided when ctx ends. It returns nil if the folder is in no repository with a
// commit, git is not installed, or has not answered when ctx ends.
func State(ctx context.Context, folder string) *clusterpb.GitCommit {
	changes := make(chan *bytes.Buffer, 1)
	go func() {
		out, err := run(ctx, folder, "status", "--porcelain", "--untracked-files=no")
		if err != nil {
			out = nil
		}
		changes <- out
	}()
	head, err := run(ctx, folder, "rev-parse", "HEAD", "--abbrev-ref", "HEAD")
	out := <-changes
	if err != nil {
		return nil
	}
	commit, branch, _ := strings.Cut(strings.TrimSpace(head.String()), "\n")
	if branch == "HEAD" {
		branch = ""
	}
	return &clusterpb.GitCommit{Commit: commit, Branch: branch, Dirty: out != nil && out.Len() > 0, Undecided: out == nil}
}

// run runs git in a folder, without the programs that a repository's configuration may name for status.
func run(ctx context.Context, folder string, args ...string) (*bytes.Buffer, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false", "--no-optional-locks"}, args...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.WaitDelay = folder, &out, 100*time.Millisecond
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")
	return &out, cmd.Run()
}

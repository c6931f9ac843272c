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

// State returns the commit that is checked out in a folder and whether tracked files have changed since. It returns nil
// if the folder is in no repository with a commit, git is not installed, or has not answered when ctx ends: in a large
// repository that takes seconds.
func State(ctx context.Context, folder string) *clusterpb.GitCommit {
	out, err := run(ctx, folder, "status", "--porcelain=v2", "--branch", "--untracked-files=no")
	if err != nil {
		return nil
	}
	g := &clusterpb.GitCommit{}
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		commit, isCommit := strings.CutPrefix(line, "# branch.oid ")
		branch, isBranch := strings.CutPrefix(line, "# branch.head ")
		switch {
		case isCommit:
			g.Commit = commit
		case isBranch && branch != "(detached)":
			g.Branch = branch
		case !strings.HasPrefix(line, "#"):
			g.Dirty = true
		}
	}
	if g.GetCommit() == "" || g.GetCommit() == "(initial)" {
		return nil
	}
	return g
}

// run runs git in a folder, without the programs that a repository's configuration may name for status.
func run(ctx context.Context, folder string, args ...string) (*bytes.Buffer, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.fsmonitor=false", "--no-optional-locks"}, args...)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.WaitDelay = folder, &out, 100*time.Millisecond
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")
	return &out, cmd.Run()
}

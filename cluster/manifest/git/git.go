// Package git reads the state of the git repository that a folder is in.
package git

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// State returns the commit that is checked out in a folder and whether tracked files have changed since. It returns nil
// if the folder is in no repository with a commit, git is not installed, or has not answered when ctx ends: in a large
// repository that takes seconds.
func State(ctx context.Context, folder string) *clusterpb.GitCommit {
	filters, err := withoutFilters(ctx, folder)
	if err != nil {
		return nil
	}
	args := slices.Concat(harmless, filters,
		[]string{"status", "--porcelain=v2", "--branch", "--untracked-files=no", "--ignore-submodules=dirty"})
	out, err := run(ctx, folder, args)
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

// harmless are options with which git runs no program that a repository's configuration names, except filters.
var harmless = []string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "--no-optional-locks"}

// withoutFilters returns options that turn off the filters which are configured: status runs them for files that may
// have changed. A repository may be somebody else's.
func withoutFilters(ctx context.Context, folder string) ([]string, error) {
	out, err := run(ctx, folder,
		append(slices.Clone(harmless), "config", "--null", "--name-only", "--get-regexp", `^filter\.`))
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return nil, nil // there are none
	}
	if err != nil {
		return nil, err
	}
	var options []string
	for name := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\x00"), "\x00") {
		if strings.Contains(name, "=") { // -c takes what is before it for the name
			return nil, errors.New("a filter has a name that cannot be given to git")
		}
		value := ""
		if strings.HasSuffix(name, ".required") {
			value = "false"
		}
		options = append(options, "-c", name+"="+value)
	}
	return options, nil
}

// run runs git in a folder.
func run(ctx context.Context, folder string, args []string) (*bytes.Buffer, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.WaitDelay = folder, &out, 100*time.Millisecond
	cmd.Env = append(os.Environ(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none")
	return &out, cmd.Run()
}

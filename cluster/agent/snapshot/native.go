package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// nativeWait bounds py-spy, which stops the process during that time. It reads the symbols of all libraries; those of
// TensorFlow have more than a gigabyte.
const nativeWait = 20 * time.Second

// Native returns the stacks of a process with native frames, in the text of py-spy. py-spy must be installed in
// folder or on the PATH, and must be allowed to trace the process (ptrace(2)).
func Native(ctx context.Context, pid int, folder string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, nativeWait)
	defer cancel()
	program, err := exec.LookPath(filepath.Join(folder, "py-spy"))
	if err != nil {
		if program, err = exec.LookPath("py-spy"); err != nil {
			return "", errors.New("py-spy is not installed there: add it to the executors' environment (pip install py-spy)")
		}
	}
	cmd := exec.CommandContext(ctx, program, "dump", "--native", "--pid", strconv.Itoa(pid))
	out, problem := &cappedBuffer{most: maxNative + 1}, &cappedBuffer{most: maxCommand + 1}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, problem, time.Second
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return "", errors.New("py-spy did not end in time: ask again, or without --native")
	case err != nil:
		first, _, _ := strings.Cut(strings.TrimSpace(problem.kept.String()), "\n")
		// The advice of py-spy is sudo, which containers rarely have.
		if strings.Contains(strings.ToLower(first), "permission denied") {
			first = "it may not look at the task: the executors' containers need the capability SYS_PTRACE, " +
				"or kernel.yama.ptrace_scope=0"
		}
		return "", fmt.Errorf("py-spy: %s", cmp.Or(oneLine(first, maxCommand), err.Error()))
	}
	return limited(out.kept.String(), maxNative), nil
}

// cappedBuffer keeps the first bytes that are written to it.
type cappedBuffer struct {
	kept bytes.Buffer // not embedded: its ReadFrom has no limit
	most int
}

// Write implements io.Writer.
func (b *cappedBuffer) Write(p []byte) (int, error) {
	b.kept.Write(p[:min(len(p), b.most-b.kept.Len())])
	return len(p), nil
}

package forking

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/proc"
)

// guardFailed is a guard's exit code if it could not start its command.
const guardFailed = 127

// guardMain is `tfcluster guard COMMAND [ARG]…`: it runs a zygote or a forker as its child and
// subreaper. If that is killed at the same moment as its agent, the guard kills all remaining
// processes of the tasks, which are then its descendants. The command does not depend on the
// guard. guardMain returns the command's exit code.
func guardMain(command []string) int {
	if len(command) == 0 {
		fmt.Fprintln(os.Stderr, "tfcluster guard: no command")
		return guardFailed
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "become the tasks' subreaper:", err)
		return guardFailed
	}
	pid, err := forkGuarded(command)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return guardFailed
	}
	status := awaitChild(pid)
	endBelow()
	if !status.Signaled() {
		return status.ExitStatus()
	}
	fmt.Fprintln(os.Stderr, "signal:", status.Signal()) // the last line of its log says why it ended
	return 128 + int(status.Signal())
}

// forkGuarded starts the command with a mark in its environment by which its descendants are
// found.
func forkGuarded(command []string) (int, error) {
	path, err := findProgram(command[0], &syscall.ProcAttr{Env: os.Environ()})
	if err != nil {
		return 0, fmt.Errorf("find the program %s (a name without / is searched on the PATH of its host): %w",
			command[0], err)
	}
	if path == ThisProgram {
		command[0] = "tfcluster"
	}
	here, _ := os.Getwd() // for people who look at it
	var random [16]byte
	if _, err := unix.Getrandom(random[:], 0); err != nil {
		return 0, fmt.Errorf("make the mark by which a task's processes are found: %w", err)
	}
	if err := os.Setenv(strings.TrimSuffix(proc.ZygoteMarker, "="), here+"/"+hex.EncodeToString(random[:])); err != nil {
		return 0, err
	}
	files := []uintptr{os.Stdin.Fd(), os.Stdout.Fd(), os.Stderr.Fd()}
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", path, err)
	}
	return pid, nil
}

// awaitChild reaps children until pid has ended. It continues pid whenever a signal stops it: a
// stopped zygote notices neither a request nor the end of its agents, and would stay for ever.
func awaitChild(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		changed, err := unix.Wait4(-1, &status, unix.WUNTRACED, nil)
		switch {
		case err != nil && !errors.Is(err, unix.EINTR), changed == pid && !status.Stopped():
			return status
		case changed == pid:
			_ = unix.Kill(pid, unix.SIGCONT)
		}
	}
}

// endBelow kills descendants of this process until there are none. Children of a process that
// forked meanwhile become children of this one.
func endBelow() {
	for {
		proc.KillBelow()
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // no child is left
		}
	}
}

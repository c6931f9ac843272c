package agent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// GuardCommand is the word by which this program is started as a guard.
const GuardCommand = "guard"

// thisProgram is the path by which a process starts another of its own program.
const thisProgram = "/proc/self/exe"

// guardFailed is a guard's exit code where there was nothing to guard.
const guardFailed = 127

// GuardMain is `tfcluster guard COMMAND [WORD]…`: it runs a zygote or a forker, and is the
// one who is left when that is killed in the same moment as its agent. What their tasks
// started then descends from the guard, which kills it. It takes no part in anything
// else: the command goes on without one that is killed, and ends with its agents as it
// always does. It returns the command's exit code.
func GuardMain(command []string) int {
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

// forkGuarded starts the command with a mark by which all that descends from it is found.
func forkGuarded(command []string) (int, error) {
	path, err := exec.LookPath(command[0])
	if err != nil {
		return 0, err
	}
	if path == thisProgram {
		command[0] = "tfcluster"
	}
	here, _ := os.Getwd() // only says whose it is
	if err := os.Setenv(strings.TrimSuffix(zygoteMarker, "="), here+"/"+rand.Text()); err != nil {
		return 0, err
	}
	files := []uintptr{os.Stdin.Fd(), os.Stdout.Fd(), os.Stderr.Fd()}
	pid, err := syscall.ForkExec(path, command, &syscall.ProcAttr{Env: os.Environ(), Files: files})
	if err != nil {
		return 0, fmt.Errorf("run %s: %w", path, err)
	}
	return pid, nil
}

// awaitChild reaps children until one has ended.
func awaitChild(pid int) unix.WaitStatus {
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if ended == pid || err != nil && !errors.Is(err, unix.EINTR) {
			return status
		}
	}
}

// endBelow kills what descends from this process until nothing does. Who forked
// meanwhile leaves its child here, and is followed by it.
func endBelow() {
	for {
		killBelow()
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // no child is left
		}
	}
}

// killBelow kills every process that descends from this one.
func killBelow() {
	for _, pid := range processTable().below(os.Getpid()) {
		_ = unix.Kill(pid, unix.SIGKILL) // gone is as well
	}
}

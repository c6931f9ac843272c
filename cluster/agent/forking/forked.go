package forking

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/proc"
)

// runnerArgs are an interpreter's arguments for a program whose specification is descriptor 4
// and whose control socket is descriptor 3.
var runnerArgs = []string{"-P", "-m", "tfcluster.runner", "3", "4"}

// start starts a task with fds as its stdout, stderr and control descriptor.
func (s *forker) start(r *forkerRequest, fds []int) (pid int, err error) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	argv := r.Argv
	files := []uintptr{null.Fd(), uintptr(fds[0]), uintptr(fds[1])}
	if len(argv) == 0 { // a Python program
		spec, err := memoryFile(r.Spec)
		if err != nil {
			return 0, err
		}
		defer spec.Close()
		argv = append([]string{s.python}, runnerArgs...)
		files = append(files, uintptr(fds[2]), spec.Fd())
	}
	attr := &syscall.ProcAttr{
		Dir: r.Cwd, Env: s.environment(r), Files: files, Sys: &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL},
	}
	path, err := findProgram(argv[0], attr)
	if err == nil {
		if pid, err = syscall.ForkExec(path, argv, attr); err == nil {
			return pid, nil
		}
	}
	// As in a shell, the task writes the reason to stderr and exits.
	code := "126"
	if errors.Is(err, unix.ENOENT) {
		code = "127"
	}
	if info, cwdErr := os.Stat(r.Cwd); r.Cwd != "" && (cwdErr != nil || !info.IsDir()) {
		err = fmt.Errorf("the task's working directory %s does not exist on this host: start --working-dir names one that "+
			"all executors have", r.Cwd)
	}
	attr.Dir = ""
	why := fmt.Sprintf("tfcluster: cannot run %s: %v", argv[0], err)
	return syscall.ForkExec("/bin/sh", []string{"sh", "-c", `echo "$1" >&2; exit "$2"`, "sh", why, code}, attr)
}

// environment returns a task's environment: its agent's, the request's variables, and the mark
// by which its processes are found. The forker's own may be another agent's.
func (s *forker) environment(r *forkerRequest) []string {
	all := map[string]string{}
	maps.Copy(all, r.Base)
	for _, name := range append(r.Unset, strings.TrimSuffix(proc.TaskMarker, "=")) {
		delete(all, name)
	}
	maps.Copy(all, r.Env)
	var env []string
	for k, v := range all {
		env = append(env, k+"="+v)
	}
	return append(env, proc.TaskMarker+r.ID)
}

// findProgram resolves a name without a slash on the task's own PATH.
func findProgram(name string, attr *syscall.ProcAttr) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := "/usr/local/bin:/usr/bin:/bin"
	for _, entry := range attr.Env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	var found error = unix.ENOENT
	for dir := range strings.SplitSeq(path, ":") {
		if !strings.HasPrefix(dir, "/") {
			dir = cmp.Or(attr.Dir, ".") + "/" + dir
		}
		file := dir + "/" + name
		info, err := os.Stat(file)
		switch {
		case err != nil || info.IsDir():
		case unix.Access(file, unix.X_OK) == nil:
			return file, nil
		default:
			found = unix.EACCES
		}
	}
	return "", found
}

// memoryFile returns an anonymous file with text, at offset 0.
func memoryFile(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("tfcluster-spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file for the task's specification: %w", err)
	}
	f := os.NewFile(uintptr(fd), "tfcluster-spec")
	if _, err = f.WriteAt(text, 0); err != nil { // which leaves the offset at the beginning
		f.Close()
		if errors.Is(err, unix.ENOSPC) { // it is a file in memory
			err = unix.ENOMEM
		}
		return nil, fmt.Errorf("write the task's specification: %w", err)
	}
	return f, nil
}

// kill signals a task's session. SIGKILL also kills processes that left the session, and drops
// a task that has ended.
func (s *forker) kill(c *forkerConn, id string, number unix.Signal) {
	pid, known := c.pids[id]
	if !known {
		return
	}
	child, taken := s.children[pid]
	alive := taken && child.conn == c && child.id == id
	if taken && !alive { // the pid was reused for another task
		delete(c.pids, id)
		return
	}
	switch {
	case number == unix.SIGKILL:
		s.killTask(pid, id, alive)
	case alive:
		_ = unix.Kill(-pid, number) // here and below: a process that has ended is no error
		return
	default:
		processes := proc.ReadTable()
		for _, found := range processes.Below(os.Getpid()) {
			if processes[found].Session == pid {
				_ = unix.Kill(found, number)
			}
		}
		return
	}
	if !alive {
		delete(c.pids, id)
	}
	if len(s.children) == 0 {
		proc.KillBelow() // daemons in sessions of their own may have no mark
	}
}

// searches bounds the searches for a task's processes: each finds what has forked during the one before.
const searches = 10

// killTask kills the processes of a task. It searches before it kills: descendants without a mark, in sessions of their
// own, are known as the task's only while it lives. One that such a descendant forks between the search and its own end
// is not found, unless it has the mark.
func (s *forker) killTask(pid int, id string, alive bool) {
	killed := map[int]bool{}
	for range searches {
		found := slices.DeleteFunc(s.processesOf(pid, id, alive), func(p int) bool { return killed[p] })
		if alive && len(killed) == 0 {
			_ = unix.Kill(-pid, unix.SIGKILL)
		}
		if len(found) == 0 {
			return
		}
		for _, p := range found {
			_ = unix.Kill(p, unix.SIGKILL)
			killed[p] = true
		}
	}
}

// processesOf returns the processes of a task: of its session, those that it has started, and those with its mark.
func (s *forker) processesOf(pid int, id string, alive bool) []int {
	processes := proc.ReadTable()
	return slices.DeleteFunc(processes.Below(os.Getpid()), func(found int) bool {
		if _, task := s.children[found]; task && found != pid {
			return true
		}
		return processes[found].Session != pid && !(alive && processes.IsBelow(found, pid)) &&
			proc.Mark(found, proc.TaskMarker) != id
	})
}

// reap reports the ends of tasks to their agents, and reaps orphans of tasks.
func (s *forker) reap() {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		child := s.children[pid]
		delete(s.children, pid)
		if child == nil || child.conn == nil {
			continue
		}
		code, number := status.ExitStatus(), 0
		if status.Signaled() {
			code, number = -1, int(status.Signal())
		}
		child.conn.send(map[string]any{"op": "exited", "id": child.id, "pid": pid, "code": code, "signal": number})
	}
}

package sparktest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// daemon is a master or a worker: a JVM that is killed when the test's process ends.
type daemon struct {
	name, log string
	args, env []string
	pid       int
	cmd       *exec.Cmd     // nil if another process has started it
	done      chan struct{} // closed when the process has ended
}

func (d *daemon) start(dir string) error {
	out, err := os.Create(d.log)
	if err != nil {
		return err
	}
	defer out.Close() // the child has its own descriptor
	d.done = make(chan struct{})
	d.cmd = exec.Command(d.args[0], d.args[1:]...)
	d.cmd.Dir, d.cmd.Env = dir, d.env
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // Pdeathsig applies to the thread that forks, so that thread must wait for the child
		runtime.LockOSThread()
		defer close(d.done)
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // the log shows how it ended
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	d.pid = d.cmd.Process.Pid
	return nil
}

// kill kills the daemon, but not the processes it has started, and waits for its end.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.done
}

// text returns the daemon's log so far, or "" if it cannot be read.
func (d *daemon) text() string { return read(d.log) }

func read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(b)
}

// tail returns the last lines of a log.
func tail(text string) string {
	const most = 40
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "")
}

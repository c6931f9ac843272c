package sparktest

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
)

// daemon is a master or a worker: a JVM that dies with the test's process.
type daemon struct {
	name, log  string
	words, env []string
	cmd        *exec.Cmd
	done       chan struct{} // closed when it has been waited for
}

func (d *daemon) start(dir string) error {
	out, err := os.Create(d.log)
	if err != nil {
		return err
	}
	defer out.Close() // the child holds its own
	d.done = make(chan struct{})
	d.cmd = exec.Command(d.words[0], d.words[1:]...)
	d.cmd.Dir, d.cmd.Env = dir, d.env
	d.cmd.Stdout, d.cmd.Stderr = out, out
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // Pdeathsig follows the forking thread, which therefore waits for its child
		runtime.LockOSThread()
		defer close(d.done)
		err := d.cmd.Start()
		started <- err
		if err == nil {
			_ = d.cmd.Wait() // how it ended is in its log
		}
	}()
	return <-started
}

// kill ends the daemon alone, not what it has started, and waits for its end.
func (d *daemon) kill() {
	_ = d.cmd.Process.Kill() // it may have ended
	<-d.done
}

// text is the daemon's log so far, "" where it cannot be read.
func (d *daemon) text() string { return read(d.log) }

func read(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(b)
}

// tail is the end of a log.
func tail(text string) string {
	const most = 40
	lines := strings.SplitAfter(text, "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "")
}

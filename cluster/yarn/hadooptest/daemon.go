package hadooptest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Daemon is one of Hadoop's processes. Only the test's goroutine may call its methods.
type Daemon struct {
	Name string // NameNode, NodeManager-0, …
	Log  string // its log file, to which restarts append

	c       *Cluster
	archive classArchive
	args    []string
	env     []string
	ready   func() error

	cmd  *exec.Cmd     // nil while it does not run
	done chan struct{} // closed when the process has ended
}

// daemon returns a daemon that is not started yet.
func (c *Cluster) daemon(name, class, conf string, heap int, ready func() error) *Daemon {
	a := c.archiveOf(name, class)
	return &Daemon{
		Name: name, Log: filepath.Join(c.dir, "log", name+".log"), c: c, archive: a,
		args: append(a.javaOptions(), c.javaArgs(conf, heap, class)...), env: append(os.Environ(), "HADOOP_CONF_DIR="+conf),
		ready: ready,
	}
}

// javaArgs returns the arguments of java; heap is in MiB.
func (c *Cluster) javaArgs(conf string, heap int, class string, more ...string) []string {
	args := []string{
		fmt.Sprintf("-Xmx%dm", heap), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xss512k",
		"-Djava.net.preferIPv4Stack=true", "-Djdk.net.hosts.file=" + filepath.Join(c.dir, "hosts"),
		"-Dhadoop.log.dir=" + filepath.Join(c.dir, "log"), "-Dyarn.log.dir=" + filepath.Join(c.dir, "log"),
		"-Dhadoop.home.dir=" + c.dir, "-Djava.io.tmpdir=" + filepath.Join(c.dir, "tmp"), "-XX:-UsePerfData",
	}
	for _, p := range []string{"java.lang", "java.net", "java.util", "java.util.concurrent", "java.io", "sun.nio.ch"} {
		args = append(args, "--add-opens=java.base/"+p+"=ALL-UNNAMED")
	}
	// The jars come first: an archive is valid for a prefix of the class path.
	path := strings.Join([]string{filepath.Join(c.jars, "*"), conf, filepath.Join(c.dir, "webroot")}, ":")
	return append(append(args, "-cp", path, class), more...)
}

// Start starts the daemon again after Kill, and waits until it is ready.
func (d *Daemon) Start() {
	d.c.t.Helper()
	if err := d.start(); err != nil {
		d.c.t.Fatal(err)
	}
}

// start starts the process and waits until it is ready.
func (d *Daemon) start() error {
	if err := d.run(); err != nil {
		return fmt.Errorf("start the %s: %w", d.Name, err)
	}
	return d.await(d.ready)
}

// await polls until ready returns nil or the daemon has ended.
func (d *Daemon) await(ready func() error) error {
	var last error
	for end := time.Now().Add(startLimit); time.Now().Before(end); {
		if last = ready(); last == nil {
			return nil
		}
		select {
		case <-d.done:
			return fmt.Errorf("the %s has ended; its log ends with:\n%s", d.Name, d.tail(40))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return fmt.Errorf("the %s is not ready after %s: %w; its log ends with:\n%s", d.Name, startLimit, last, d.tail(40))
}

func (d *Daemon) run() error {
	log, err := os.OpenFile(d.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("java", d.args...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = d.env, d.c.dir, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started, done := make(chan error), make(chan struct{})
	go func() { // Pdeathsig applies to the thread that forks, so that thread must wait for the child
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // the log shows how it ended
			close(done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	d.cmd, d.done = cmd, done
	return nil
}

// Kill kills the daemon with SIGKILL and waits for its end.
func (d *Daemon) Kill() {
	if d.cmd == nil {
		return
	}
	d.signal(syscall.SIGKILL)
	<-d.done
	d.cmd = nil
}

// Pause stops the daemon with SIGSTOP, like a machine that hangs: connections stay open and nothing is
// answered.
func (d *Daemon) Pause() {
	d.c.t.Helper()
	d.signal(syscall.SIGSTOP)
	stopped := func() error { return allStopped(d.cmd.Process.Pid) }
	if err := d.await(stopped); err != nil { // the signal reaches the threads one after the other
		d.c.t.Fatal(err)
	}
}

// allStopped returns an error if a thread of a process is not stopped.
func allStopped(pid int) error {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		return err
	}
	for _, path := range threads {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := bytes.Cut(b, []byte(") "))
		if len(rest) > 0 && !bytes.ContainsRune([]byte("TZX"), rune(rest[0])) { // stopped, or ended
			return fmt.Errorf("a thread of process %d is in state %c", pid, rest[0])
		}
	}
	return nil
}

// Resume continues a paused daemon.
func (d *Daemon) Resume() { d.signal(syscall.SIGCONT) }

func (d *Daemon) signal(s syscall.Signal) {
	if err := d.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		d.c.t.Errorf("send %s to the %s: %v", s, d.Name, err)
	}
}

// tail returns the last n lines of the daemon's log.
func (d *Daemon) tail(n int) string {
	b, err := os.ReadFile(d.Log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}

// Command runs a command of Hadoop, such as org.apache.hadoop.hdfs.tools.DFSAdmin, and returns its output.
func (c *Cluster) Command(class string, args ...string) (string, error) {
	cmd := exec.Command("java", c.javaArgs(c.Conf, 128, class, args...)...)
	cmd.Dir, cmd.Env = c.dir, append(os.Environ(), "HADOOP_CONF_DIR="+c.Conf)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s", class, strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

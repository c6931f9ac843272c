package kernel

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	zmq "github.com/go-zeromq/zmq4"
	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// child is one ipykernel process and the connections to it.
type child struct {
	// Static after construction.
	k         *Kernel
	cmd       *exec.Cmd
	dir       *folder // contains its sockets and connection file
	began     time.Time
	tail      *tail // last lines of its stderr
	dead      chan struct{}
	out       [3]*link
	links     []*link
	work      sync.WaitGroup
	connected chan struct{} // closed by the first message on IOPub
	once      sync.Once
}

// The ports of the child are the names of sockets in its folder.
const (
	childShell = iota + 1
	childIOPub
	childStdin
	childControl
	childHB
)

// Limits for a child that does not start.
const (
	maxDeaths  = 3 // consecutive deaths of children that lived less than minLife
	minLife    = 5 * time.Second
	startLimit = 2 * time.Minute
	startPause = time.Second // before a child that could not be started is tried again
)

// childLoop restarts the child until the kernel ends.
func (k *Kernel) childLoop() {
	for k.ctx.Err() == nil {
		c, err := k.startChild()
		if err == nil {
			if err = c.connect(); err == nil {
				k.childReady(c)
				select {
				case <-c.dead:
				case <-k.ctx.Done():
				}
			}
			c.end()
		}
		if !k.childGone(c, err) {
			return
		}
		if c == nil { // perhaps for want of memory or processes
			select {
			case <-time.After(startPause):
			case <-k.ctx.Done():
			}
		}
	}
}

// startChild starts ipykernel in a separate process group, so that it does not get signals for
// this process twice. The child is killed when this process ends for any reason.
func (k *Kernel) startChild() (*child, error) {
	dir, err := newFolder()
	if err != nil {
		return nil, err
	}
	c := &child{
		k: k, dir: dir, began: time.Now(), tail: &tail{}, dead: make(chan struct{}), connected: make(chan struct{}),
	}
	conn := *k.conn
	conn.IP, conn.Transport = filepath.Join(dir.path, "k"), "ipc"
	conn.ShellPort, conn.IOPubPort, conn.StdinPort, conn.ControlPort, conn.HBPort = childShell, childIOPub, childStdin,
		childControl, childHB
	file := filepath.Join(dir.path, "connection.json")
	b, err := json.Marshal(conn)
	if err == nil {
		err = os.WriteFile(file, b, 0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("write the connection file of the notebook's Python: %w; free space there, "+
			"or start the Jupyter server again with TMPDIR set to another folder", err), dir.remove())
	}
	args := append([]string{"-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", file}, k.cfg.ChildArgs...)
	c.cmd = exec.Command(k.cfg.Python, args...)
	c.cmd.Env = append(append(os.Environ(), "JPY_PARENT_PID="+strconv.Itoa(os.Getpid())), k.cfg.ChildEnv...)
	c.cmd.Stdout, c.cmd.Stderr = os.Stdout, io.MultiWriter(os.Stderr, c.tail)
	c.cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // Pdeathsig applies to the forking thread, so the thread waits for the child
		runtime.LockOSThread()
		defer close(c.dead)
		err := c.cmd.Start()
		started <- err
		if err == nil {
			_ = c.cmd.Wait() // ProcessState has the result
		}
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(fmt.Errorf("%w; if it was removed, tfcluster install --python PATH names another", err),
			dir.remove())
	}
	return c, nil
}

// connect dials the child's sockets once they exist.
func (c *child) connect() error {
	deadline := time.After(startLimit)
	for _, port := range []int{childShell, childIOPub, childStdin, childControl} {
		for {
			if _, err := os.Stat(c.socket(port)); err == nil {
				break
			}
			select {
			case <-c.dead:
				return errEarly
			case <-c.k.ctx.Done():
				return errEnd
			case <-deadline:
				return fmt.Errorf("the notebook's Python was not ready after %s, and was ended", startLimit)
			case <-time.After(socketPoll):
			}
		}
	}
	if err := c.dial(childIOPub, zmq.Sub, "", c.fromIOPub); err != nil {
		return err
	}
	c.links[len(c.links)-1].put([][]byte{{1}}) // subscribes to all topics
	// The same for all sockets: ipykernel sends input requests to the shell's identity.
	identity := "tfcluster-" + wire.NewID()[:8]
	for _, d := range []struct {
		to   channel
		port int
		take func([][]byte)
	}{
		{shellChannel, childShell, c.k.fromShell},
		{controlChannel, childControl, c.k.fromControl},
		{stdinChannel, childStdin, func(f [][]byte) { c.k.stdin.Send(f) }},
	} {
		if err := c.dial(d.port, zmq.Dealer, identity, d.take); err != nil {
			return err
		}
		c.out[d.to] = c.links[len(c.links)-1]
	}
	select { // ipykernel before version 7 sends no welcome; its subscriptions take effect immediately
	case <-c.connected:
	case <-c.dead:
		return errEarly
	case <-time.After(500 * time.Millisecond):
	}
	return nil
}

// dial opens a link and its two goroutines. The socket file exists before the child listens, so
// a refused connection is retried.
func (c *child) dial(port int, kind zmq.SocketType, identity string, take func([][]byte)) error {
	for {
		l, err := openLink(c.socket(port), kind, identity)
		if err == nil {
			c.links = append(c.links, l)
			c.work.Go(l.run)
			c.work.Go(func() { l.receive(identity, take) })
			return nil
		}
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("the notebook's Python broke the connection while it started: %w", err)
		}
		select {
		case <-c.dead:
			return errEarly
		case <-c.k.ctx.Done():
			return errEnd
		case <-time.After(socketPoll):
		}
	}
}

// errEarly reports a child that ended before the kernel was connected with it.
var errEarly = errors.New("the notebook's Python ended while it started")

// socketPoll is the interval of checks on a starting child.
const socketPoll = 2 * time.Millisecond

// socket returns the path of one of the child's sockets.
func (c *child) socket(port int) string {
	return filepath.Join(c.dir.path, "k") + "-" + strconv.Itoa(port)
}

// fromIOPub forwards the child's IOPub messages. It always reads: back-pressure would make the
// child drop messages.
func (c *child) fromIOPub(frames [][]byte) {
	msgType, parent, ok := wire.Peek(frames)
	c.once.Do(func() { close(c.connected) })
	if !ok || msgType == "iopub_welcome" {
		return
	}
	if hidden(parent) {
		c.k.marked(parent, nil, false)
		return
	}
	if msgType == "status" && len(parent) > 0 {
		c.k.childStatus(frames, parent)
		return
	}
	c.k.iopub.Send(frames, droppable(msgType))
}

// childStatus forwards busy and idle of the child. Clients take the last status for the
// kernel's, so a busy of a matched cell that still runs follows.
func (k *Kernel) childStatus(frames [][]byte, parent string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.iopub.Send(frames, false)
	k.passed.note(frames, parent)
	if idle := k.childBusy.note(frames, parent); !idle {
		if r := k.awaiting(parent, begun); r != nil {
			r.seen |= begun
			k.childBusy.begin(parent)
		}
		return
	}
	if r := k.awaiting(parent, idled); r != nil {
		r.seen |= begun | idled
		defer k.finish(r)
	}
	switch {
	case k.running != nil:
		k.status(k.running.msg.RawHeader(), "busy")
	case len(k.concurrent) > 0:
		k.concurrentBusy()
	}
}

// fromControl handles the child's messages on control.
func (k *Kernel) fromControl(frames [][]byte) {
	msgType, parent, ok := wire.Peek(frames)
	if ok && hidden(parent) {
		k.repaired(parent)
		return
	}
	if !ok || msgType == "shutdown_reply" {
		return
	}
	if msgType == "kernel_info_reply" {
		frames = k.addBanner(frames)
	}
	k.replyPassed(parent)
	k.control.Send(frames)
}

func (c *child) send(o outgoing) { c.out[o.to].put(o.frames) }

// interrupt sends SIGINT to the child's process group, as a terminal does.
func (c *child) interrupt() {
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGINT) // it may have ended
}

// end kills the child and its process group and releases its resources.
func (c *child) end() {
	select {
	case <-c.dead:
	default:
		_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-c.dead:
		case <-time.After(childGrace):
		}
	}
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL) // its own children, such as shells
	<-c.dead
	for _, l := range c.links {
		l.end()
	}
	c.work.Wait()
	if err := c.dir.remove(); err != nil {
		c.k.log.Warn("the folder of the ended Python stays in TMPDIR; remove it by hand", "err", err)
	}
}

// childReady sends the child the messages that have waited for it.
func (k *Kernel) childReady(c *child) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.child = c
	clear(k.hidden) // the previous child did not run them
	k.skipTicks()
	k.hide(tick{count: k.count, after: mend})
	if k.count > 0 { // a later child continues the count
		k.hide(tick{count: k.count + 1})
	}
	waiting := k.waiting
	k.waiting = nil
	for _, o := range waiting {
		c.send(o)
	}
	for _, r := range k.outstanding {
		r.sent = true
	}
	for _, r := range k.passed {
		r.sent = true
	}
	clear(k.childBusy)
	k.repair = ""
	k.marks = markers{} // the previous child's markers are lost
	k.pump()
}

// childGone answers the requests of a child that has ended. It reports whether to start another
// one.
func (k *Kernel) childGone(c *child, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.child = nil
	if k.ending || k.ctx.Err() != nil {
		return false
	}
	why := ""
	switch {
	case err != nil && c == nil:
		why = err.Error()
	case err != nil:
		why = err.Error() + ": " + exitWords(c.cmd)
	default:
		why = "the Python process ended (" + exitWords(c.cmd) + ")"
		if ws, ok := c.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			why = fmt.Sprintf("the Python process was killed by signal %d (%s)", ws.Signal(), unix.SignalName(ws.Signal()))
		}
	}
	if c != nil && time.Since(c.began) > minLife {
		k.deaths = 0
	}
	k.deaths++
	again := k.deaths < maxDeaths
	outlook := "a new one is starting; variables are lost, clusters are not"
	if !again {
		last := ""
		if c != nil && c.tail.String() != "" {
			last = "; its last output: " + c.tail.String()
		}
		k.broken = "the notebook's Python does not keep running: " + why + last + "; correct that, then restart the kernel"
		outlook = "it failed at its start or right after it " + strconv.Itoa(k.deaths) +
			" times and is not started again; correct the cause, then restart the kernel" + last
	}
	k.log.Warn("the notebook's Python has ended; "+outlook, "why", why)
	if !again {
		k.waiting = nil // refusePassed and refuseLost answer its requests
		k.skipTicks()
	}
	k.refuseLost(why + "; " + outlook)
	k.refusePassed(cmp.Or(k.broken, why+"; "+outlook))
	k.pump()
	return again
}

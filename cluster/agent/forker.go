package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// How long a forker waits for its first connection, and behind its last.
const (
	forkerFirst  = 30 * time.Second
	forkerLinger = time.Second
)

// maxForkRequest bounds one request of a forker's, in bytes.
const maxForkRequest = 64 << 20

// forker starts the tasks of this host's agents where no Python is wanted: it speaks
// the zygote's protocol (tfcluster/zygote.py), is the parent of tasks and their
// subreaper as that is, and ends an agent's tasks when the agent's connection closes.
// It is owned by the goroutine in serveForks, whose thread never ends before the process:
// tasks die with the thread that forked them.
type forker struct {
	listener *net.UnixListener // nil once newcomers are no longer served
	path     string            // of its socket
	inode    uint64
	python   string // for programs that are Python's after all
	come     chan *net.UnixConn
	received chan forkerInput
	over     chan struct{} // closed at its end
	conns    map[*forkerConn]bool
	children map[int]*forkedTask // by pid, until they are reaped
}

// forkerConn is one agent.
type forkerConn struct {
	conn    *net.UnixConn
	pending []byte
	fds     []int
	pids    map[string]int // of each task that was started and not forgotten
}

// forkedTask is a child; conn is nil once its agent has gone.
type forkedTask struct {
	conn *forkerConn
	id   string
}

// forkerInput is what came over a connection, or its end.
type forkerInput struct {
	from *forkerConn
	data []byte
	fds  []int
	err  error
}

// forkerRequest is any line of an agent's; see spawnRequest.
type forkerRequest struct {
	Op     string            `json:"op"`
	ID     string            `json:"id"`
	Argv   []string          `json:"argv"`
	Env    map[string]string `json:"env"`
	Unset  []string          `json:"unset"`
	Cwd    string            `json:"cwd"`
	Spec   json.RawMessage   `json:"spec"`
	Signal int               `json:"signal"`
}

// ForkerCommand is the word by which this program is started as a forker.
const ForkerCommand = "forker"

// ForkerMain is `tfcluster forker --socket PATH --python PYTHON`: it serves at a path of
// this user's alone until no agent is connected. PYTHON is the interpreter of programs
// that need one.
func ForkerMain(args []string) error {
	flags := flag.NewFlagSet(ForkerCommand, flag.ContinueOnError)
	path, python := flags.String("socket", "", "path of the unix socket to serve on"), flags.String("python", "python3", "interpreter of Python programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return serveForks(*path, *python)
}

func serveForks(path, python string) error {
	runtime.LockOSThread()
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // of whoever started it; Linux before 5.11 passes them on
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the tasks' subreaper: %w", err)
	}
	s := &forker{
		path: path, python: python, come: make(chan *net.UnixConn), received: make(chan forkerInput), over: make(chan struct{}),
		conns: map[*forkerConn]bool{}, children: map[int]*forkedTask{},
	}
	if err := s.listen(); err != nil {
		return err
	}
	defer killBelow()
	defer s.retire()
	defer close(s.over)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	alone := time.NewTimer(forkerFirst)
	for {
		select {
		case conn := <-s.come:
			if s.accept(conn) {
				alone.Stop()
			}
		case in := <-s.received:
			s.take(in)
			if len(s.conns) == 0 {
				alone.Reset(forkerLinger)
			}
		case <-ended:
			s.reap()
		case <-alone.C:
			return nil
		}
	}
}

// listen opens the socket and accepts agents until it is closed.
func (s *forker) listen() error {
	before := unix.Umask(0o177)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.path, Net: "unix"})
	unix.Umask(before)
	if err != nil {
		return fmt.Errorf("open the forker's socket: %w", err)
	}
	listener.SetUnlinkOnClose(false) // it may be another's by then
	var at unix.Stat_t
	if err := unix.Stat(s.path, &at); err != nil {
		return fmt.Errorf("open the forker's socket: %w", err)
	}
	s.listener, s.inode = listener, at.Ino
	go func() { // ends with the listener
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			select {
			case s.come <- conn:
			case <-s.over:
				return
			}
		}
	}()
	return nil
}

// retire takes the socket away, so that newcomers start another forker.
func (s *forker) retire() {
	if s.listener == nil {
		return
	}
	s.listener.Close()
	s.listener = nil
	var at unix.Stat_t
	if unix.Stat(s.path, &at) == nil && at.Ino == s.inode {
		os.Remove(s.path)
	}
}

// accept serves an agent of this user's; it reports false for anybody else.
func (s *forker) accept(conn *net.UnixConn) bool {
	if checkPeer(conn) != nil {
		conn.Close()
		return false
	}
	c := &forkerConn{conn: conn, pids: map[string]int{}}
	s.conns[c] = true
	c.send(map[string]any{"op": "ready", "python": map[string]any{}})
	go func() { // ends with the connection
		for {
			in := c.read()
			select {
			case s.received <- in:
			case <-s.over:
				return
			}
			if in.err != nil {
				return
			}
		}
	}()
	return true
}

// read waits for what comes next. Descriptors are not inherited by tasks.
func (c *forkerConn) read() forkerInput {
	data, oob := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(16*4))
	n, oobn, _, _, err := c.conn.ReadMsgUnix(data, oob)
	in := forkerInput{from: c, data: data[:max(n, 0)], err: err} // -1 with an error
	if n == 0 && err == nil {
		in.err = io.EOF
	}
	messages, err := unix.ParseSocketControlMessage(oob[:max(oobn, 0)])
	if err != nil {
		in.err = errors.Join(in.err, err)
	}
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			in.err = errors.Join(in.err, err)
		}
		in.fds = append(in.fds, fds...)
	}
	return in
}

// take handles what came over a connection.
func (s *forker) take(in forkerInput) {
	c := in.from
	if !s.conns[c] { // dropped meanwhile
		closeAll(in.fds)
		return
	}
	c.pending, c.fds = append(c.pending, in.data...), append(c.fds, in.fds...)
	for in.err == nil {
		line, rest, whole := bytes.Cut(c.pending, []byte("\n"))
		if !whole {
			break
		}
		var r forkerRequest
		if err := json.Unmarshal(line, &r); err != nil {
			in.err = err
			break
		}
		c.pending = rest
		in.err = s.obey(c, &r)
	}
	if in.err != nil || len(c.pending) > maxForkRequest {
		s.drop(c)
	}
}

func (s *forker) obey(c *forkerConn, r *forkerRequest) error {
	switch r.Op {
	case "spawn":
		if len(c.fds) < 3 {
			return fmt.Errorf("spawn %s: three descriptors must come with it", r.ID)
		}
		fds := c.fds[:3]
		c.fds = c.fds[3:]
		pid, err := s.start(r, fds)
		closeAll(fds)
		if err != nil {
			c.send(map[string]any{"op": "error", "id": r.ID, "error": err.Error()})
			return nil
		}
		s.children[pid] = &forkedTask{conn: c, id: r.ID}
		c.pids[r.ID] = pid
		c.send(map[string]any{"op": "spawned", "id": r.ID, "pid": pid, "fresh": ""})
	case "kill":
		s.kill(c, r.ID, unix.Signal(r.Signal))
	case "retire":
		s.retire()
		c.send(map[string]any{"op": "retired"})
	}
	return nil
}

// drop ends an agent's tasks with its connection.
func (s *forker) drop(c *forkerConn) {
	delete(s.conns, c)
	for id := range c.pids {
		s.kill(c, id, unix.SIGKILL)
	}
	for _, t := range s.children {
		if t.conn == c {
			t.conn = nil
		}
	}
	closeAll(c.fds)
	c.conn.Close()
}

// send tells an agent something, which fits into the socket: an agent that reads
// nothing is noticed by the end of its connection.
func (c *forkerConn) send(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err) // of our own making
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second)) // as above
	_, _ = c.conn.Write(append(line, '\n'))
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

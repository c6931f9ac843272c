package forking

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/internal/proc"
)

// How long a forker waits for its first connection, and after its last.
const (
	forkerFirst  = 30 * time.Second
	forkerLinger = time.Second
)

// maxForkRequest bounds one request to a forker, in bytes.
const maxForkRequest = 64 << 20

// forker starts the tasks of this host's agents if no Python is needed: it implements the
// zygote's protocol (tfcluster/zygote.py), is the parent and subreaper of the tasks, and ends
// an agent's tasks when its connection closes. Only serveForks' goroutine uses it; it keeps its
// thread until the process ends, because a task's death signal is sent when the thread that
// forked it ends.
type forker struct {
	listener *listener // nil once it accepts no more agents
	python   string    // the interpreter for Python programs
	come     chan *os.File
	received chan forkerInput
	over     chan struct{} // closed when it ends
	conns    map[*forkerConn]bool
	children map[int]*forkedTask // by pid, until reaped
}

// forkerConn is the connection of one agent.
type forkerConn struct {
	conn    *os.File
	pending []byte
	fds     []int
	pids    map[string]int // of each started task that was not dropped
}

// forkedTask is a child; conn is nil once its agent has gone.
type forkedTask struct {
	conn *forkerConn
	id   string
}

// forkerInput is data received on a connection, or its end.
type forkerInput struct {
	from *forkerConn
	data []byte
	fds  []int
	err  error
}

// forkerRequest is any request of an agent; see interpreter.SpawnRequest.
type forkerRequest struct {
	Op     string            `json:"op"`
	ID     string            `json:"id"`
	Argv   []string          `json:"argv"`
	Base   map[string]string `json:"base"`
	Env    map[string]string `json:"env"`
	Unset  []string          `json:"unset"`
	Cwd    string            `json:"cwd"`
	Spec   json.RawMessage   `json:"spec"`
	Signal int               `json:"signal"`
}

// forkerMain is `tfcluster forker --socket PATH --python PYTHON`: it serves on a unix socket
// that only this user can open until no agent is connected. PYTHON runs Python programs.
func forkerMain(args []string) error {
	flags := flag.NewFlagSet(ForkerCommand, flag.ContinueOnError)
	path, python := flags.String("socket", "", "path of the unix socket to serve on"),
		flags.String("python", "python3", "interpreter of Python programs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return serveForks(*path, *python)
}

func serveForks(path, python string) error {
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the subreaper of the tasks' processes (prctl): %w", err)
	}
	s := &forker{
		python: python, come: make(chan *os.File), received: make(chan forkerInput), over: make(chan struct{}),
		conns: map[*forkerConn]bool{}, children: map[int]*forkedTask{},
	}
	if err := s.listen(path); err != nil {
		return err
	}
	defer proc.KillBelow()
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

// listen opens the socket and accepts connections until it is closed.
func (s *forker) listen(path string) error {
	l, err := listen(path)
	if err != nil {
		return fmt.Errorf("open the socket on which the agent asks for tasks: %w", err)
	}
	s.listener = l
	go func() { // ends with the listener
		for {
			conn, err := l.accept()
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

// retire closes the socket, so that new agents start another forker.
func (s *forker) retire() {
	if s.listener == nil {
		return
	}
	s.listener.close()
	s.listener = nil
}

// accept serves a connection if it is of this user; otherwise it returns false.
func (s *forker) accept(conn *os.File) bool {
	if !ofThisUser(conn) {
		conn.Close()
		return false
	}
	c := &forkerConn{conn: conn, pids: map[string]int{}}
	s.conns[c] = true
	c.send(map[string]any{"op": "ready", "python": map[string]any{}})
	go func() { // ends with the connection
		for {
			data := make([]byte, 64<<10)
			n, fds, err := receive(conn, data)
			select {
			case s.received <- forkerInput{from: c, data: data[:n], fds: fds, err: err}:
			case <-s.over:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return true
}

// take handles input of a connection.
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
			return fmt.Errorf("start %s: its three descriptors did not come with it", r.ID)
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

// drop kills an agent's tasks and closes its connection.
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

// send sends a message to an agent. Errors are ignored: the connection's end is noticed by
// reading.
func (c *forkerConn) send(message any) {
	line, err := json.Marshal(message)
	if err != nil {
		panic(err) // cannot fail for these messages
	}
	_ = c.conn.SetWriteDeadline(time.Now().Add(time.Second)) // see above
	_, _ = c.conn.Write(append(line, '\n'))
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

package interpreter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/jsonlines"
)

// maxAnswer bounds a line of a zygote, in bytes.
const maxAnswer = 1 << 20

// spawnTimeout bounds a zygote's fork.
const spawnTimeout = 30 * time.Second

// ErrZygoteGone is the error of a fork: the zygote died before it forked a task.
var ErrZygoteGone = errors.New("the process that tasks are forked from (the zygote) ended unexpectedly")

// SpawnRequest is a task to fork, in the JSON of the zygote's protocol.
type SpawnRequest struct {
	Op    string            `json:"op"`
	ID    string            `json:"id"`
	Argv  []string          `json:"argv"`
	Base  map[string]string `json:"base,omitempty"` // this agent's environment: another agent may have started the zygote
	Env   map[string]string `json:"env"`            // variables that replace or extend Base
	Unset []string          `json:"unset,omitempty"`
	Cwd   string            `json:"cwd"`
	Fresh bool              `json:"fresh"`
	Spec  any               `json:"spec,omitempty"` // for the runner; nil
}

// ExitStatus is a process's exit code, or a signal with code -1.
type ExitStatus struct{ Code, Signal int32 }

// Process is a task's process, which the zygote forked.
type Process struct {
	Zygote *zygote
	ID     string
	PID    int
	Fresh  string // why it is a new interpreter instead of a fork, or ""
	Exited chan ExitStatus
}

// Signal signals the process's session. After its exit SIGKILL kills its remaining processes
// and the zygote drops it.
func (p *Process) Signal(number int) error { return p.Zygote.kill(p.ID, number) }

// zygoteMessage is any message of a zygote.
type zygoteMessage struct {
	Op     string          `json:"op"`
	ID     string          `json:"id"`
	Pid    int             `json:"pid"`
	Code   int32           `json:"code"`
	Signal int32           `json:"signal"`
	Error  string          `json:"error"`
	Fresh  string          `json:"fresh"`
	Python json.RawMessage `json:"python"`
}

// zygote is a connection to a zygote process. Closing it ends the tasks forked through it.
type zygote struct {
	conn    *net.UnixConn
	pid     int
	mark    string            // in the environment of its descendants
	python  *clusterpb.Python // set before ready is closed
	ready   chan struct{}
	Gone    chan struct{} // closed when the connection ended
	retired chan struct{} // closed when it accepts no more agents
	reader  sync.WaitGroup

	out *jsonlines.Writer

	mu sync.Mutex
	// guarded by mu
	spawning map[string]chan zygoteMessage
	exits    map[string]chan ExitStatus
}

// NewZygote returns a zygote that uses and closes conn.
func NewZygote(conn *net.UnixConn) *zygote {
	z := &zygote{
		conn: conn, out: jsonlines.NewWriter(conn, spawnTimeout), ready: make(chan struct{}), Gone: make(chan struct{}),
		retired: make(chan struct{}), spawning: map[string]chan zygoteMessage{}, exits: map[string]chan ExitStatus{},
	}
	if peer, err := peerOf(conn); err == nil {
		z.pid, z.mark = int(peer.Pid), markOf(int(peer.Pid))
	}
	z.reader.Go(z.read)
	return z
}

func (z *zygote) Close() {
	z.conn.Close()
	z.reader.Wait()
}

// isGone reports whether the connection has ended.
func (z *zygote) isGone() bool {
	select {
	case <-z.Gone:
		return true
	default:
		return false
	}
}

// WaitReady waits for the zygote's imports and describes them.
func (z *zygote) WaitReady(ctx context.Context) (*clusterpb.Python, error) {
	select {
	case <-z.ready:
		return z.python, nil
	case <-z.Gone:
		return nil, ErrZygoteGone
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (z *zygote) read() {
	defer close(z.Gone)
	for in := jsonlines.NewReader(z.conn, maxAnswer); ; {
		var m zygoteMessage
		if err := in.Decode(&m); err != nil {
			return
		}
		z.handle(m)
	}
}

func (z *zygote) handle(m zygoteMessage) {
	z.mu.Lock()
	defer z.mu.Unlock()
	switch m.Op {
	case "ready":
		if z.python != nil {
			return
		}
		z.python = parsePython(m.Python)
		close(z.ready)
	case "retired":
		select {
		case <-z.retired:
		default:
			close(z.retired)
		}
	case "spawned", "error":
		if reply := z.spawning[m.ID]; reply != nil {
			delete(z.spawning, m.ID)
			reply <- m
		}
	case "exited":
		if exited := z.exits[m.ID]; exited != nil {
			delete(z.exits, m.ID)
			exited <- ExitStatus{m.Code, m.Signal}
		}
	}
}

func parsePython(raw json.RawMessage) *clusterpb.Python {
	p := &clusterpb.Python{}
	if err := json.Unmarshal(raw, p); err != nil {
		return &clusterpb.Python{Error: "the zygote's description of Python cannot be read: " + err.Error()}
	}
	return p
}

// Spawn forks a task with files as its stdout, stderr and control descriptor. The caller closes
// them.
func (z *zygote) Spawn(ctx context.Context, request SpawnRequest, files [3]*os.File) (*Process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, spawnTimeout,
		fmt.Errorf("it did not answer within %v, because the host is overloaded or that process is stopped", spawnTimeout))
	defer cancel()
	p := &Process{Zygote: z, ID: request.ID, Exited: make(chan ExitStatus, 1)}
	reply := make(chan zygoteMessage, 1)
	z.mu.Lock()
	z.spawning[request.ID], z.exits[request.ID] = reply, p.Exited
	z.mu.Unlock()
	request.Op = "spawn"
	if err := z.send(request, files[:]...); err != nil {
		z.forget(request.ID)
		select {
		case <-z.Gone: // the reader has not noticed its death yet
			return nil, ErrZygoteGone
		case <-time.After(time.Second):
			return nil, err
		}
	}
	select {
	case m := <-reply:
		if m.Op == "error" {
			z.forget(request.ID)
			return nil, errors.New(m.Error)
		}
		p.PID, p.Fresh = m.Pid, m.Fresh
		return p, nil
	case <-z.Gone:
		return nil, ErrZygoteGone
	case <-ctx.Done():
		z.forget(request.ID)
		_ = z.kill(request.ID, int(unix.SIGKILL)) // in case it is forked later
		return nil, fmt.Errorf("the process that tasks are forked from (the zygote) did not start this task: %w",
			context.Cause(ctx))
	}
}

// forget drops a task that could not be forked.
func (z *zygote) forget(id string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	delete(z.spawning, id)
	delete(z.exits, id)
}

// kill signals a task's session.
func (z *zygote) kill(id string, number int) error {
	return z.send(map[string]any{"op": "kill", "id": id, "signal": number})
}

// retire stops the zygote from accepting agents, so that the next one starts another. It
// returns once that is so, or the zygote has died.
func (z *zygote) retire(ctx context.Context) {
	if z.send(map[string]any{"op": "retire"}) != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, spawnTimeout)
	defer cancel()
	select {
	case <-z.retired:
	case <-z.Gone:
	case <-ctx.Done():
	}
}

func (z *zygote) send(request any, files ...*os.File) error {
	if z.pid > 0 { // a zygote that was stopped (SIGSTOP) would neither fork nor kill
		_ = unix.Kill(z.pid, unix.SIGCONT)
	}
	if err := z.out.Write(request, files...); err != nil {
		if z.out.Torn() {
			_ = z.conn.Close()
		}
		return fmt.Errorf("the process that tasks are forked from (the zygote) did not take a request: %w", err)
	}
	return nil
}

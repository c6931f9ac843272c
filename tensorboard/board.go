package tensorboard

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/internal/unixsock"
)

//go:embed serve.py
var serveScript string

// startTimeout bounds TensorBoard's start: 1 s alone, up to 15 s if TensorFlow is installed too
// and the machine is busy.
const startTimeout = 90 * time.Second

// Board is a cluster's TensorBoard: at most one process, and its proxy. Open and Close may be
// called from any goroutine.
type Board struct {
	name   string
	python string
	dir    string // for the sockets, mode 0700
	log    string // TensorBoard's output
	id     string
	token  string
	lines  http.Handler // serves /lines and paths below it; nil: nobody does

	turn sync.Mutex
	open context.Context    // guarded by turn: cancelled by the next Close
	end  context.CancelFunc // guarded by turn: cancels open

	mu      sync.Mutex   // held while TensorBoard starts
	process *process     // guarded by mu
	server  *http.Server // guarded by mu
	served  chan struct{}
	shared  bool // guarded by mu: Lines was called, so the proxy stays when TensorBoard is stopped
}

// errClosed is the error of an Open that was interrupted by Close.
var errClosed = errors.New(
	"TensorBoard was stopped while it started, because the cluster was released or its driver ended")

// Address is the address of an open board.
type Address struct {
	ID     string // opaque; only this may be stored in a notebook
	Path   string // below the Jupyter server's base URL; contains the token
	Logdir string
	Socket string // of the proxy
}

// New returns a board; it starts nothing. python is an interpreter with tensorboard, preferably
// without TensorFlow; dir is for the sockets, log for TensorBoard's output. lines, which may be nil,
// is what the proxy serves as /lines and below, whether TensorBoard runs or not.
func New(name, python, dir, log string, lines http.Handler) *Board {
	return &Board{name: name, python: python, dir: dir, log: log, lines: lines, id: random(), token: random()}
}

func random() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// SocketName is the name of the proxy's socket in its folder, known to the broker.
const SocketName = "tensorboard.sock"

// Prefix is the path at which jupyter-server-proxy serves the broker.
const Prefix = "tfcluster"

// Open starts TensorBoard for logdir, unless it runs with that, and returns its address once it
// answers. A caller that stops waiting does not end a slow start: the next one finds it.
func (b *Board) Open(ctx context.Context, logdir string) (Address, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(b.untilClosed(), func() { cancel(errClosed) })()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.python == "" {
		return Address{}, errors.New("no Python with the package tensorboard is known: pip install tensorboard, " +
			"or set TFCLUSTER_TENSORBOARD_PYTHON to one that has it")
	}
	if b.process != nil && (b.process.logdir != logdir || b.process.ended()) {
		b.process.stop()
		b.process = nil
	}
	if b.process == nil {
		p, err := start(ctx, b.python, filepath.Join(b.dir, "tb.sock"), logdir, b.log)
		if err != nil {
			return Address{}, err
		}
		b.process = p
	}
	if err := b.serve(); err != nil {
		return Address{}, err
	}
	a := b.address()
	a.ID, a.Logdir = b.id, logdir
	return a, nil
}

func (b *Board) address() Address {
	return Address{Path: Prefix + "/" + b.name + "/" + b.token + "/", Socket: filepath.Join(b.dir, SocketName)}
}

// ErrNoLines is the error of Lines if the board has no handler for them.
var ErrNoLines = errors.New(
	"this cluster's driver does not serve the lines of tasks to browsers: %tfcluster logs shows them")

// Lines starts the proxy, without TensorBoard, and returns the address below which lines are served.
func (b *Board) Lines() (Address, error) {
	if b.lines == nil {
		return Address{}, ErrNoLines
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shared = true
	if err := b.serve(); err != nil {
		return Address{}, err
	}
	return b.address(), nil
}

// serve starts the proxy, unless it runs. Caller holds mu.
func (b *Board) serve() error {
	if b.server != nil {
		return nil
	}
	ln, err := unixsock.Listen(filepath.Join(b.dir, SocketName))
	if err != nil {
		return fmt.Errorf("open the socket on which the browser reaches TensorBoard: %w", err)
	}
	proxy := NewProxy("/"+b.name+"/"+b.token+"/", filepath.Join(b.dir, "tb.sock"), b.lines)
	b.server = &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	b.served = make(chan struct{})
	go func() {
		defer close(b.served)
		_ = b.server.Serve(ln) // ends with Close
	}()
	return nil
}

// untilClosed returns a context that the next Close cancels.
func (b *Board) untilClosed() context.Context {
	b.turn.Lock()
	defer b.turn.Unlock()
	if b.open == nil {
		b.open, b.end = context.WithCancel(context.Background())
	}
	return b.open
}

// Stop ends TensorBoard, even while it starts, and its proxy unless that serves lines.
func (b *Board) Stop() error { return b.close(true) }

// Close ends TensorBoard, even while it starts, and its proxy. It may be called again.
func (b *Board) Close(context.Context) error { return b.close(false) }

// close ends TensorBoard, and its proxy unless keep says that it stays for lines.
func (b *Board) close(keep bool) error {
	b.turn.Lock()
	if b.end != nil {
		b.end()
	}
	b.open, b.end = nil, nil
	b.turn.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process != nil {
		b.process.stop()
		b.process = nil
	}
	if b.server == nil || keep && b.shared {
		return nil
	}
	b.shared = false
	err := b.server.Close()
	<-b.served
	b.server = nil
	if err != nil {
		return fmt.Errorf("close the proxy in front of TensorBoard: %w", err)
	}
	return nil
}

// process is a TensorBoard process.
type process struct {
	cmd    *exec.Cmd
	socket string
	logdir string
	done   chan struct{} // closed once it is reaped
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop kills the process and removes its socket.
func (p *process) stop() {
	if !p.ended() { // otherwise the pid may have been reused
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // it has no state to save
	}
	<-p.done
	_ = os.Remove(p.socket) // it may not exist
}

// start starts TensorBoard and waits until it listens.
func start(ctx context.Context, python, socket, logdir, log string) (*process, error) {
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove the socket of an earlier TensorBoard: %w", err)
	}
	out, err := os.OpenFile(log, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open TensorBoard's log: %w", err)
	}
	defer out.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start TensorBoard: %w", err)
	}
	defer r.Close()
	p := &process{socket: socket, logdir: logdir, done: make(chan struct{})}
	p.cmd = exec.Command(python, "-", socket, logdir)
	p.cmd.Stdin = strings.NewReader(serveScript)
	p.cmd.Stdout, p.cmd.Stderr = w, out
	// Without PYTHONSAFEPATH Python would import modules from the working directory, which other users may
	// write to.
	p.cmd.Env = append(os.Environ(), "PYTHONUNBUFFERED=1", "PYTHONSAFEPATH=1", "TF_CPP_MIN_LOG_LEVEL=3",
		"CUDA_VISIBLE_DEVICES=-1") // TensorFlow, if installed, would allocate the tasks' GPU memory
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() { // Pdeathsig is sent when the forking thread ends, so that waits for its child
		runtime.LockOSThread()
		defer close(p.done)
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // the reason is in its log
		}
	}()
	err = <-started
	_ = w.Close() // the child has its own
	if err != nil {
		return nil, fmt.Errorf("start TensorBoard with %s: %w", python, err)
	}
	if err := awaitReady(ctx, r); err != nil {
		p.stop()
		return nil, fmt.Errorf("TensorBoard did not start with %s: %w%s", python, err, logCause(log))
	}
	return p, nil
}

func awaitReady(ctx context.Context, r *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer stop()
	_, err := bufio.NewReader(r).ReadString('\n') // serve.py writes only this line there
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("the process did not answer within %s, on a slow disk perhaps: repeat the command", startTimeout)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, io.EOF):
		return errors.New("the process ended")
	default:
		return err
	}
}

func logCause(log string) string {
	b, err := os.ReadFile(log)
	last := ""
	if b = bytes.TrimSpace(b); err == nil && len(b) > 0 {
		last = ": " + string(b[bytes.LastIndexByte(b, '\n')+1:])
	}
	if strings.Contains(last, "No module named") { // pkg_resources is another requirement
		return last + `; "pip install tensorboard 'setuptools<81'" there, ` +
			`or start Jupyter with TFCLUSTER_TENSORBOARD_PYTHON set to another Python, and reserve again`
	}
	return last + "; %tfcluster doctor checks that Python"
}

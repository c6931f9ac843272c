package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tfcluster/tfcluster/kernel/wire"
	"github.com/tfcluster/tfcluster/kernel/zmtp"
)

// Config is what a Kernel is made of.
type Config struct {
	ConnectionFile string
	// Python runs the child: an interpreter with ipykernel.
	Python      string
	Interceptor Interceptor
	// ChildEnv and ChildArgs are added to the child's environment and command line.
	ChildEnv, ChildArgs []string
	// Banner stands before the child's in kernel_info.
	Banner string
	Log    *slog.Logger
}

// Kernel serves one connection file. New makes it, Run owns its goroutines.
type Kernel struct {
	// Static after construction.
	cfg    Config
	log    *slog.Logger
	conn   *Connection
	signer *wire.Signer

	sockets
	ctx    context.Context // ends with Run
	end    context.CancelCauseFunc
	opened chan struct{} // closed once every socket is there
	work   sync.WaitGroup

	mu         sync.Mutex
	childState                  // guarded by mu
	cellState                   // guarded by mu
	comms      map[string]*Comm // guarded by mu
	dying      bool             // guarded by mu
}

// errEnd is Run's ordinary end.
var errEnd = errors.New("the kernel was asked to end")

// New reads the connection file; nothing runs before Run.
func New(cfg Config) (*Kernel, error) {
	conn, err := ReadConnection(cfg.ConnectionFile)
	if err != nil {
		return nil, err
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.Interceptor = guarded{cfg.Interceptor, cfg.Log}
	return &Kernel{
		cfg: cfg, log: cfg.Log, conn: conn, signer: wire.NewSigner(conn.Key), opened: make(chan struct{}), comms: map[string]*Comm{},
		childState: childState{childBusy: busyRequests{}},
		cellState:  cellState{beside: map[*Cell]struct{}{}, inputs: map[string]chan string{}},
	}, nil
}

// Run serves until a shutdown request, SIGTERM, the parent's death or ctx's end.
func (k *Kernel) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) // at once: an early interrupt must not end us
	defer signal.Stop(signals)
	k.ctx, k.end = context.WithCancelCause(ctx)
	defer k.end(errEnd)
	if err := k.open(); err != nil {
		k.end(err) // what came in already waits for the rest
		return errors.Join(err, k.close())
	}
	close(k.opened)
	k.work.Go(k.controlLoop)
	k.work.Go(k.stdinLoop)
	k.work.Go(k.heartbeatLoop)
	k.work.Go(k.childLoop)
	k.watch(signals)
	k.endChild()
	err := k.close()
	k.work.Wait()
	if cause := context.Cause(k.ctx); !errors.Is(cause, errEnd) && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// isOpen waits until every socket is open: false, if that does not come about. What
// comes in on the first ones goes no further before.
func (k *Kernel) isOpen() bool {
	select {
	case <-k.opened:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// linger is how long clients get to read the last messages.
const linger = time.Second

func (k *Kernel) close() error {
	var errs []error
	if k.iopub != nil {
		errs = append(errs, k.iopub.Close(linger))
	}
	for _, r := range []*zmtp.Router{k.control, k.shell, k.stdin, k.heartbeat} {
		if r != nil {
			errs = append(errs, r.Close(linger))
		}
	}
	return errors.Join(errs...)
}

// parentPoll is how often the parent's life is looked at.
const parentPoll = time.Second

// watch waits for the end and handles signals until then.
func (k *Kernel) watch(signals <-chan os.Signal) {
	parent := os.Getppid()
	poll := time.NewTicker(parentPoll)
	defer poll.Stop()
	for {
		select {
		case <-k.ctx.Done():
			return
		case s := <-signals:
			if s == syscall.SIGINT {
				k.interrupt()
				continue
			}
			k.leave(true)
			return
		case <-poll.C:
			if orphaned(parent) {
				k.log.Info("the parent process is gone")
				k.leave(true)
				return
			}
		}
	}
}

// orphaned is whether the server that started the kernel is gone: its parent at the
// beginning, or, where that was gone already, the one it was told of.
func orphaned(parent int) bool {
	told := os.Getenv("JPY_PARENT_PID")
	return told != "" && (os.Getppid() != parent || parent == 1 && told != "1")
}

// shutdownTimeout bounds what the Interceptor may do at the end.
const shutdownTimeout = 10 * time.Second

// leave ends the kernel.
func (k *Kernel) leave(restart bool) {
	k.mu.Lock()
	again := k.dying
	k.dying = true
	k.mu.Unlock()
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), shutdownTimeout)
	defer cancel()
	k.cfg.Interceptor.Shutdown(ctx, restart)
	k.end(errEnd)
}

func (k *Kernel) heartbeatLoop() {
	for {
		m, err := k.heartbeat.Recv()
		if err != nil {
			return
		}
		k.heartbeat.Send(m)
	}
}

// droppable is whether a message may be replaced by a note when a client does not keep
// up: text and displays are, what tells a cell's state never is.
func droppable(msgType string) bool {
	switch msgType {
	case "stream", "display_data", "update_display_data", "clear_output":
		return true
	}
	return false
}

// welcome answers a subscription (JEP 65), which may come while the sockets are still
// being opened.
func (k *Kernel) welcome(topic []byte) {
	if !k.isOpen() {
		return
	}
	frames := k.signer.Make([][]byte{topic}, "iopub_welcome", nil, map[string]any{"subscription": string(topic)})
	if len(topic) == 0 {
		frames[0] = []byte("iopub_welcome")
	}
	k.iopub.Send(frames, false)
}

// droppedNote stands in a slow client's queue for what was dropped.
func (k *Kernel) droppedNote(l zmtp.Lost) zmtp.Message {
	var parent []byte
	if n := len(l.First); n >= 3 {
		parent = l.First[n-2]
	}
	text := fmt.Sprintf("\n… %d messages (%.1f MB) left out: this client did not keep up\n", l.Messages, float64(l.Bytes)/1e6)
	return k.signer.Make([][]byte{[]byte("stream")}, "stream", parent, wire.Stream{Name: "stderr", Text: text})
}

// publish sends one message of our own on IOPub.
func (k *Kernel) publish(msgType string, parent []byte, content any) {
	topic := "kernel.tfcluster." + msgType
	if strings.HasPrefix(msgType, "stream") {
		topic = "stream"
	}
	k.iopub.Send(k.signer.Make([][]byte{[]byte(topic)}, msgType, parent, content), droppable(msgType))
}

func (k *Kernel) status(parent []byte, state string) {
	k.publish("status", parent, wire.Status{ExecutionState: state})
}

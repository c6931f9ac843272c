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

// Config is the configuration of a Kernel.
type Config struct {
	ConnectionFile string
	// Python is the interpreter of the child; it must have ipykernel.
	Python      string
	Interceptor Interceptor
	// ChildEnv and ChildArgs are added to the child's environment and command line.
	ChildEnv, ChildArgs []string
	// Banner precedes the child's banner in kernel_info.
	Banner string
	Log    *slog.Logger
}

// Kernel serves one connection file. New creates it; Run owns its goroutines.
type Kernel struct {
	// Static after construction.
	cfg    Config
	log    *slog.Logger
	conn   *Connection
	signer *wire.Signer

	sockets
	ctx    context.Context // canceled when Run ends
	end    context.CancelCauseFunc
	opened chan struct{} // closed once every socket is open
	work   sync.WaitGroup

	mu         sync.Mutex
	childState                  // guarded by mu
	cellState                   // guarded by mu
	comms      map[string]*Comm // guarded by mu
	ending     bool             // guarded by mu
}

// errEnd is the result of watch after a regular shutdown.
var errEnd = errors.New("the kernel was asked to end")

// New reads the connection file. It starts nothing; see Run.
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
		cfg: cfg, log: cfg.Log, conn: conn, signer: wire.NewSigner(conn.Key), opened: make(chan struct{}),
		comms: map[string]*Comm{}, childState: childState{childBusy: busyRequests{}},
		cellState: cellState{concurrent: map[*Cell]struct{}{}},
	}, nil
}

// Run serves until a shutdown request, SIGTERM, the death of the parent process, or the end of
// ctx.
func (k *Kernel) Run(ctx context.Context) error {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM) // first of all: an early interrupt must not end the process
	defer signal.Stop(signals)
	k.ctx, k.end = context.WithCancelCause(ctx)
	defer k.end(errEnd)
	if err := k.open(); err != nil {
		k.end(err) // messages already received wait for the other sockets
		return errors.Join(err, k.close())
	}
	close(k.opened)
	k.work.Go(k.controlLoop)
	k.work.Go(k.stdinLoop)
	k.work.Go(k.heartbeatLoop)
	k.work.Go(k.childLoop)
	k.watch(signals)
	k.mu.Lock()
	k.child = nil
	k.mu.Unlock()
	err := k.close()
	k.work.Wait()
	if cause := context.Cause(k.ctx); !errors.Is(cause, errEnd) && !errors.Is(cause, context.Canceled) {
		err = errors.Join(cause, err)
	}
	return err
}

// awaitOpen waits until every socket is open; it returns false if that fails. Messages received
// on the first sockets wait for it.
func (k *Kernel) awaitOpen() bool {
	select {
	case <-k.opened:
		return true
	case <-k.ctx.Done():
		return false
	}
}

// linger is how long clients have to read the last messages.
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

// parentPoll is the interval of checks whether the parent process is alive.
const parentPoll = time.Second

// watch handles signals until the kernel must end.
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
				k.log.Info("the parent process has ended")
				k.leave(true)
				return
			}
		}
	}
}

// orphaned reports whether the server that started the kernel has ended: the parent process at
// startup, or, if that had already ended, the process in JPY_PARENT_PID.
func orphaned(parent int) bool {
	told := os.Getenv("JPY_PARENT_PID")
	return told != "" && (os.Getppid() != parent || parent == 1 && told != "1")
}

// shutdownTimeout limits the Interceptor's Shutdown.
const shutdownTimeout = 10 * time.Second

// leave ends the kernel.
func (k *Kernel) leave(restart bool) {
	k.mu.Lock()
	again := k.ending
	k.ending = true
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

// droppable reports whether a message may be replaced by a note if a client reads too slowly:
// text and displays may, messages about the state of a cell may not.
func droppable(msgType string) bool {
	switch msgType {
	case "stream", "display_data", "update_display_data", "clear_output":
		return true
	}
	return false
}

// welcome answers a subscription (JEP 65), which may arrive while sockets are still being
// opened.
func (k *Kernel) welcome(topic []byte) {
	if !k.awaitOpen() {
		return
	}
	frames := k.signer.Make([][]byte{topic}, "iopub_welcome", nil, map[string]any{"subscription": string(topic)})
	if len(topic) == 0 {
		frames[0] = []byte("iopub_welcome")
	}
	k.iopub.Send(frames, false)
}

// droppedNote returns the message that replaces dropped ones in a slow client's queue.
func (k *Kernel) droppedNote(l zmtp.Lost) zmtp.Message {
	var parent []byte
	if n := len(l.First); n >= 3 {
		parent = l.First[n-2]
	}
	text := fmt.Sprintf("\n… %d messages (%.1f MB) dropped: this client reads too slowly\n", l.Messages,
		float64(l.Bytes)/1e6)
	return k.signer.Make([][]byte{[]byte("stream")}, "stream", parent, wire.Stream{Name: "stderr", Text: text})
}

// publish sends a message of this kernel on IOPub.
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

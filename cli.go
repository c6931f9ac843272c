package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster/agent/gpu"
	"github.com/tfcluster/tfcluster/magics"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// runShell runs a verb from a shell, with the same session, options and messages as in a notebook, and
// shows its output on a terminal.
func runShell(ctx context.Context, args []string) int {
	program, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tfcluster: find this program:", err)
		return 1
	}
	tasks, tensorboard := shellPython()
	s := magics.NewSession(ctx, session.Options{
		Connector: magics.LocalDrivers{Program: program}, Client: fmt.Sprintf("shell %d", os.Getpid()), Python: tasks,
		TensorBoardPython: tensorboard, Version: version, Shell: true,
		Inventory: gpu.Inventory, Engines: engines(nil), Archive: history{},
	})
	defer s.Close()
	t := newTerminal(os.Stdout, os.Stderr)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	var first atomic.Int32 // the first signal; 0 if there was none
	go func() {            // ends with done
		for {
			select {
			case s := <-signals:
				if number, ok := s.(syscall.Signal); ok {
					first.CompareAndSwap(0, int32(number))
				}
				t.interrupt()
			case <-done:
				return
			}
		}
	}()
	_, err = s.RunArgv(ctx, args, t, nil)
	t.finish()
	r := result.NewReport(err)
	if r == nil {
		return 0
	}
	for i, line := range r.Lines {
		if i == 0 { // the exception's class is of no use in a shell
			line = "tfcluster: " + strings.TrimPrefix(line, r.Name+": ")
		}
		fmt.Fprintln(os.Stderr, line)
	}
	if n := first.Load(); n != 0 && r.Code == interruptedCode {
		return 128 + int(n)
	}
	return r.Code
}

// interruptedCode is the exit code after an interrupt: 128 + SIGINT.
const interruptedCode = 130

// terminal shows a verb's output in a shell: displays as plain text, which is updated in place on a
// terminal; otherwise only a display's final text is written.
type terminal struct {
	out, err   io.Writer
	tty        bool
	interrupts chan struct{}

	mu      sync.Mutex
	shown   map[string]string // guarded by mu: text by display ID
	last    string            // guarded by mu: the display whose text is at the cursor
	pending map[string]string // guarded by mu: texts that are not written yet
	order   []string          // guarded by mu
}

func newTerminal(out, err *os.File) *terminal {
	return &terminal{out: out, err: err, tty: isTerminal(out), interrupts: make(chan struct{}, 2), shown: map[string]string{}, pending: map[string]string{}}
}

// Stdout writes text to standard output.
func (t *terminal) Stdout(text string) { t.write(t.out, text) }

// Stderr writes text to standard error.
func (t *terminal) Stderr(text string) { t.write(t.err, text) }

func (t *terminal) write(w io.Writer, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = ""
	_, _ = io.WriteString(w, text) // SIGPIPE ends the program if the reader has gone
}

// Display shows a display's plain text.
func (t *terminal) Display(id string, data, _ map[string]any) {
	text := plain(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" && !t.tty { // written when the next display begins, or at the end
		t.flush()
		t.order, t.pending[id] = append(t.order, id), text
		return
	}
	if id != "" {
		t.shown[id], t.last = text, id
	}
	_, _ = io.WriteString(t.out, text) // as above
}

// Update replaces a display's text, if it is still at the cursor.
func (t *terminal) Update(id string, data, _ map[string]any) {
	text := plain(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if text == t.shown[id] {
		return
	}
	if !t.tty {
		if _, ok := t.pending[id]; !ok {
			t.order = append(t.order, id)
		}
		t.pending[id] = text
		return
	}
	if t.last == id {
		fmt.Fprintf(t.out, "\x1b[%dA\x1b[J", strings.Count(t.shown[id], "\n"))
	}
	t.shown[id], t.last = text, id
	_, _ = io.WriteString(t.out, text) // as above
}

// finish writes the pending texts.
func (t *terminal) finish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.flush()
}

func (t *terminal) flush() {
	for _, id := range t.order {
		_, _ = io.WriteString(t.out, t.pending[id]) // as above
	}
	t.order = nil
}

// Interrupts returns a channel with one value for each Ctrl-C.
func (t *terminal) Interrupts() <-chan struct{} { return t.interrupts }

func (t *terminal) interrupt() {
	select {
	case t.interrupts <- struct{}{}:
	default:
	}
}

func plain(data map[string]any) string {
	text, _ := data["text/plain"].(string)
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}

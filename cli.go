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

// runShell does one of the verbs for people from a shell: the same session, table and
// words as in a notebook, shown on a terminal.
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
	var first atomic.Int32 // of the signals, 0 while there was none
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
		if i == 0 { // the class of the exception says nothing to a shell
			line = "tfcluster: " + strings.TrimPrefix(line, r.Name+": ")
		}
		fmt.Fprintln(os.Stderr, line)
	}
	if n := first.Load(); n != 0 && r.Code == interruptedCode {
		return 128 + int(n)
	}
	return r.Code
}

// interruptedCode is the exit code of what an interrupt ended: 128 + SIGINT.
const interruptedCode = 130

// terminal shows a verb's output in a shell: displays as their plain text, updated in
// place where the output is a terminal, and where it is not only as they end.
type terminal struct {
	out, err   io.Writer
	tty        bool
	interrupts chan struct{}

	mu      sync.Mutex
	shown   map[string]string // guarded by mu: by display id
	last    string            // guarded by mu: the id whose text is at the cursor
	pending map[string]string // guarded by mu: updates that a pipe does not see yet
	order   []string          // guarded by mu
}

func newTerminal(out, err *os.File) *terminal {
	return &terminal{out: out, err: err, tty: isTerminal(out), interrupts: make(chan struct{}, 2), shown: map[string]string{}, pending: map[string]string{}}
}

// Stdout writes text.
func (t *terminal) Stdout(text string) { t.write(t.out, text) }

// Stderr writes text.
func (t *terminal) Stderr(text string) { t.write(t.err, text) }

func (t *terminal) write(w io.Writer, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = ""
	_, _ = io.WriteString(w, text) // a reader that went away is told by SIGPIPE
}

// Display shows a bundle's plain text.
func (t *terminal) Display(id string, data, _ map[string]any) {
	text := plain(data)
	t.mu.Lock()
	defer t.mu.Unlock()
	if id != "" && !t.tty { // held until it is settled: the next display, or the end
		t.flush()
		t.order, t.pending[id] = append(t.order, id), text
		return
	}
	if id != "" {
		t.shown[id], t.last = text, id
	}
	_, _ = io.WriteString(t.out, text) // as above
}

// Update replaces what was shown, if it is still at the cursor.
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

// finish shows what a pipe has not seen.
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

// Interrupts yields one value for each Ctrl-C.
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

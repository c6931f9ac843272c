package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
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
	program, err := ownPath()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tfcluster:", err)
		return 1
	}
	tasks, tensorboard := shellPython()
	s := magics.NewSession(ctx, session.Options{
		Connector: magics.LocalDrivers{Program: program}, Client: fmt.Sprintf("shell %d", os.Getpid()), Python: tasks,
		TensorBoardPython: tensorboard, Version: version, Shell: true,
		Inventory: gpu.Inventory, Engines: engines(nil), History: history{}, Remains: remainsOfInstall,
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
	r := result.NewReport(err).WithHelp(true)
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

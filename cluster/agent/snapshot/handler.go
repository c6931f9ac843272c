package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/proc"
)

// The real-time signals that glibc leaves to programs.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// memoryFile is the name in /proc of the file to which faulthandler writes.
const memoryFile = "/memfd:tfcluster-stacks"

// maxDump bounds the part of faulthandler's text that is read, in bytes. It writes 100 threads of 100 frames at most.
const maxDump = 4 << 20

// handler is the task's handler of the signal.
type handler struct {
	mu sync.Mutex
	// guarded by mu
	pid     int
	started uint64   // start time of the process, from proc.Stat
	file    *os.File // the file to which it writes; nil: no handler is installed
	of      Registration
}

// register opens the file to which the handler writes. The message may come from the program itself, so register does
// not trust it: the file must be such a memory file.
func (h *handler) register(pid int, r Registration) error {
	if r.Signal < firstRealTime || r.Signal > lastRealTime {
		return fmt.Errorf("the task asked for stacks by signal %d, which is not one of the real-time signals", r.Signal)
	}
	path := descriptorPath(pid, r.Descriptor)
	if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, memoryFile) {
		return fmt.Errorf("descriptor %d of process %d is not %s", r.Descriptor, pid, memoryFile)
	}
	stat, ok := proc.Read(pid)
	if !ok {
		return fmt.Errorf("the task's process %d has ended", pid)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open the file for the stacks of process %d: %w", pid, err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file != nil {
		h.file.Close()
	}
	h.pid, h.started, h.file, h.of = pid, stat.Started, file, r
	return nil
}

func descriptorPath(pid, descriptor int) string {
	return fmt.Sprintf("/proc/%d/fd/%d", pid, descriptor)
}

// close removes the handler: no signal is sent any more.
func (h *handler) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file != nil {
		h.file.Close()
		h.file = nil
	}
}

// stacks makes the handler write the stacks of all threads and adds them to the snapshot. It returns an error if that
// is not possible.
func (h *handler) stacks(ctx context.Context, snapshot *clusterpb.Snapshot) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.file == nil {
		return errors.New(
			"the task has not set up faulthandler, which writes stacks: it has not begun yet, or runs no Python")
	}
	if err := h.check(); err != nil {
		return err
	}
	if err := h.file.Truncate(0); err != nil {
		return fmt.Errorf("the file for its stacks cannot be emptied: %w", err)
	}
	if err := unix.Tgkill(h.pid, h.of.Thread, unix.Signal(h.of.Signal)); err != nil {
		return fmt.Errorf("the signal that asks for the stacks could not be sent: %w", err)
	}
	if err := h.await(ctx); err != nil {
		return err
	}
	text, err := io.ReadAll(io.NewSectionReader(h.file, 0, maxDump))
	if err != nil {
		return fmt.Errorf("the stacks that were written cannot be read: %w", err)
	}
	threads, more := parseFaulthandler(string(text))
	if len(threads) == 0 {
		return errors.New("faulthandler wrote no stacks: ask again, or with --native, which py-spy answers")
	}
	// This thread belongs to tfcluster.
	threads = slices.DeleteFunc(threads, func(t *clusterpb.ThreadStack) bool { return t.GetId() == h.of.ThreadID })
	for _, t := range threads {
		t.Main = t.GetId() == h.of.Main
	}
	snapshot.Source = clusterpb.FromFaulthandler
	if snapshot.Threads, snapshot.ThreadsLeftOut = tidy(threads); more {
		snapshot.ThreadsLeftOut++
	}
	return nil
}

// check returns an error if the signal must not be sent: it would end the process or another one, the handler would
// write to a file of the program, or the signal could not be delivered. Caller holds mu.
func (h *handler) check() error {
	stat, ok := proc.Read(h.pid)
	if !ok || stat.Over() || stat.Started != h.started {
		return errors.New("the task's process has ended")
	}
	ours, err := h.file.Stat()
	if err != nil {
		return fmt.Errorf("the file for its stacks cannot be read: %w", err)
	}
	if theirs, err := os.Stat(descriptorPath(h.pid, h.of.Descriptor)); err != nil || !os.SameFile(ours, theirs) {
		return fmt.Errorf("the program has closed descriptor %d, to which its stacks are written: ask with --native (py-spy)",
			h.of.Descriptor)
	}
	does, ok := proc.Signal(h.pid, h.of.Thread, h.of.Signal)
	switch {
	case !ok:
		return errors.New("the thread that writes the stacks has ended: ask with --native (py-spy)")
	case !does.Caught:
		return fmt.Errorf("the program has replaced the handler of signal %d, which writes its stacks: "+
			"ask with --native (py-spy)", h.of.Signal)
	case does.Pending || does.Blocked:
		return fmt.Errorf("the thread that writes its stacks has not handled an earlier signal %d yet, "+
			"because it waits for a disk or device, is stopped or blocks that signal: ask again when that is over", h.of.Signal)
	}
	return nil
}

// await waits until the handler has run: the file has text, and the thread no longer blocks the signal, as it does
// while the handler runs. Caller holds mu.
func (h *handler) await(ctx context.Context) error {
	for end := time.Now().Add(signalWait); ; {
		// The size is read before the state: if the handler does not run after that, its text is complete.
		file, err := h.file.Stat()
		if err != nil {
			return fmt.Errorf("the file for its stacks cannot be read: %w", err)
		}
		does, ok := proc.Signal(h.pid, h.of.Thread, h.of.Signal)
		late := time.Now().After(end)
		switch {
		case !ok:
			return errors.New("the task's process has ended meanwhile")
		case file.Size() > 0 && !does.Pending && !does.Blocked:
			return nil
		case late && (does.Pending || does.Blocked):
			return errors.New("the thread that writes the stacks is stopped, or waits for a disk or device, " +
				"so it cannot handle the signal: ask again when that is over")
		case late:
			return errors.New("faulthandler wrote no stacks: ask again, or with --native, which py-spy answers")
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			return errors.New("the stacks were not written in time: ask again")
		}
	}
}

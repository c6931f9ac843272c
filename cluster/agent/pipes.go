package agent

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/agent/tasklog"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// taskPipes are a task's stdout, stderr and control socket. The agent's ends
// are non-blocking and take deadlines; the task's are as a program expects them.
type taskPipes struct {
	stdout, stderr, control *os.File // the agent's ends
	taskEnds                [3]*os.File
}

func openPipes() (*taskPipes, error) {
	p := &taskPipes{}
	for i, own := range []**os.File{&p.stdout, &p.stderr, &p.control} {
		var fds [2]int
		var err error
		if own == &p.control {
			fds, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		} else {
			err = unix.Pipe2(fds[:], unix.O_CLOEXEC)
		}
		if err == nil {
			err = unix.SetNonblock(fds[0], true)
		}
		if err != nil {
			p.close()
			return nil, fmt.Errorf("open pipes for the output of a task: %w", err)
		}
		*own = os.NewFile(uintptr(fds[0]), "task pipe")
		p.taskEnds[i] = os.NewFile(uintptr(fds[1]), "task end")
	}
	return p, nil
}

func (p *taskPipes) closeTaskEnds() {
	for i, f := range p.taskEnds {
		if f != nil {
			f.Close()
			p.taskEnds[i] = nil
		}
	}
}

// close closes everything; readers end.
func (p *taskPipes) close() {
	p.closeTaskEnds()
	for _, f := range []*os.File{p.stdout, p.stderr, p.control} {
		if f != nil {
			f.Close()
		}
	}
}

// carriageWait is the time that a \r waits for a \n that belongs to it.
const carriageWait = 50 * time.Millisecond

// taskOutput reads and stores what a task writes.
type taskOutput struct {
	task  string // whose
	log   *tasklog.Log
	tail  tail
	nccl  ncclChoice
	pumps sync.WaitGroup
	open  bool // another process has it open when the task's end is reported; only used by run
}

// pump reads one of the task's streams to its end. It waits for the disk only, so a task never
// blocks on a full pipe.
func (o *taskOutput) pump(r *os.File, stream clusterpb.Line_Stream) {
	var s tasklog.Splitter
	buffer := make([]byte, 64<<10)
	for {
		wait := time.Time{}
		if s.Carriage {
			wait = time.Now().Add(carriageWait)
		}
		_ = r.SetReadDeadline(wait)
		n, err := r.Read(buffer)
		frames := s.Write(buffer[:n])
		timedOut := errors.Is(err, os.ErrDeadlineExceeded)
		if timedOut {
			if f, ok := s.Pending(); ok {
				frames = append(frames, f)
			}
		} else if err != nil {
			if f, ok := s.Close(); ok {
				frames = append(frames, f)
			}
		}
		o.store(frames, stream)
		if err != nil && !timedOut {
			return
		}
	}
}

// store appends lines to the task's log, and to the tail if they may explain a failure.
func (o *taskOutput) store(frames []tasklog.Frame, stream clusterpb.Line_Stream) {
	now := time.Now().UnixNano()
	lines := make([]*clusterpb.Line, 0, len(frames))
	for _, f := range frames {
		if f.Carriage && f.Text == "" {
			continue // a bar that begins with \r
		}
		lines = append(lines, &clusterpb.Line{
			Stream: stream, UnixNano: now, Text: f.Text, Carriage: f.Carriage, Continues: f.Continues, Task: o.task,
		})
		if stream == clusterpb.Line_STDERR && !f.Carriage && !errtext.Harmless(f.Text) {
			o.tail.add(f.Text)
		}
		o.nccl.read(f.Text)
	}
	o.log.Add(lines)
}

// Limits of the lines shown with a failure.
const (
	tailLines = 30
	tailWidth = 2000 // bytes of one line
)

// tail keeps the last tailLines lines of stderr.
type tail struct {
	mu sync.Mutex
	// guarded by mu
	last []string
}

func (t *tail) add(line string) {
	if len(line) > tailWidth {
		line = line[:excerpt.WholeRunes([]byte(line[:tailWidth]))] + "…"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.last) == tailLines {
		t.last = append(t.last[:0], t.last[1:]...)
	}
	t.last = append(t.last, line)
}

func (t *tail) lines() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.last)
}

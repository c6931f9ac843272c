package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"path/filepath"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/feed/intake"
)

// taskFeed is the feed of a task whose program reads one. It outlives the program: records that the program has
// not read are moved to other tasks, until the run ends.
type taskFeed struct {
	start func() (*intake.Intake, error)

	mu     sync.Mutex
	intake *intake.Intake // guarded by mu; nil: the program has not asked
	closed bool           // guarded by mu
}

// open answers a program that calls get_data_feed.
func (f *taskFeed) open(t *task) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	if f.intake == nil {
		in, err := f.start()
		if err != nil {
			t.sendControl(map[string]any{"op": "feed", "error": err.Error()})
			return
		}
		f.intake = in
	}
	path, key := f.intake.Socket()
	t.sendControl(map[string]any{"op": "feed", "socket": path, "key": key})
}

// programEnded notes that the task's process has ended: it reads nothing any more.
func (f *taskFeed) programEnded() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.intake != nil {
		f.intake.ProgramEnded()
	}
}

// close ends the feed.
func (f *taskFeed) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	if f.intake != nil {
		f.intake.Close()
		f.intake = nil
	}
}

// openFeed makes the holder of a task.
func (a *Agent) openFeed(ctx context.Context, l *clusterpb.Launch) (*intake.Intake, error) {
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails
	a.mu.Lock()
	memory := a.driver.memory
	a.mu.Unlock()
	return intake.Open(ctx, intake.Config{
		Run: l.GetRun(), Attempt: l.GetAttempt(), Task: l.GetTask(), Host: a.self.host, Memory: memory, Client: a.link.feeds, Log: a.log,
		Socket: filepath.Join(a.cfg.GetFolders().GetRuntimeDir(), "feed-"+hex.EncodeToString(name)+".sock"),
	})
}

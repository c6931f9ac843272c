package agent

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// ending is the scope of an EndRun, determined when it arrives: tasks of later instructions are
// not affected.
type ending struct {
	tasks    []*task
	attempts map[int32]int32 // of the runs
	renew    bool
}

func (a *Agent) endingOf(e *clusterpb.EndRun) ending {
	end := ending{tasks: a.tasksOf(e.GetRun()), attempts: map[int32]int32{}}
	a.mu.Lock()
	for id, r := range a.runs {
		if e.GetRun() == 0 || e.GetRun() == id {
			end.attempts[id] = r.attempt
		}
	}
	a.mu.Unlock()
	end.renew = slices.ContainsFunc(end.tasks, (*task).needsRenewal)
	if end.renew {
		a.python.Withdraw()
	}
	return end
}

// endRun ends every process of a run (0: of all), then releases its port. It holds a port again
// for the next Hello if no run is left.
func (a *Agent) endRun(ctx context.Context, e *clusterpb.EndRun, end ending) {
	var work sync.WaitGroup
	for _, t := range end.tasks {
		work.Go(func() { t.end(ctx, millis(e.GetGraceMillis()), "") })
	}
	work.Wait()
	for _, t := range end.tasks {
		t.services.close()
	}
	a.mu.Lock()
	for id, attempt := range end.attempts {
		r := a.runs[id]
		if r == nil {
			continue
		}
		r.tasks = slices.DeleteFunc(r.tasks, func(t *task) bool { return slices.Contains(end.tasks, t) })
		if len(r.tasks) > 0 || attempt != r.attempt {
			continue // the run was prepared again meanwhile
		}
		r.port.release()
		delete(a.runs, id)
	}
	if a.port == nil && len(a.runs) == 0 {
		a.port, _ = holdPort() // after an error Hello.ports is shorter
	}
	a.mu.Unlock()
	if end.renew {
		a.python.Renew(ctx)
	}
}

// release kills all tasks and waits until their files and lines are delivered, each with a time
// limit.
func (a *Agent) release(reason string) {
	a.log.Info("released", "reason", reason)
	tasks := a.tasksOf(0)
	for _, t := range tasks {
		t.signal(sigKill, "released: "+reason)
	}
	for _, t := range tasks {
		waitFor(t.done, settlePipes)
	}
	if a.disk.files != nil {
		a.disk.files.flush(filesReleaseWait)
	}
	for end := time.Now().Add(releaseWait); !a.logs.Delivered() && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}

package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// output is what one launch of a task writes. Its lines come on one stream, the report of
// its end on another; the report has the number of lines.
type output struct {
	task     cluster.TaskID
	attempt  int32
	exec     cluster.ExecutorID
	executor int               // the executor's attempt: another one does not have these lines
	exit     *clusterpb.Exited // nil until the agent has reported the end
}

// outputs is what the launches of a run's tasks write.
type outputs struct {
	all      []*output // in the order of the launches
	byLaunch map[launchID]*output
	missed   bool // a note says which lines may be missing
}

// launchID names a launch of a run.
type launchID struct {
	task    cluster.TaskID
	attempt int32
}

// writes notes a launch: lines will come. Loop only.
func (r *record) writes(id cluster.TaskID, attempt int32, x *lifecycle.Executor) {
	o := &output{task: id, attempt: attempt, exec: x.ID, executor: x.Attempt}
	r.outputs.all = append(r.outputs.all, o)
	if r.outputs.byLaunch == nil {
		r.outputs.byLaunch = map[launchID]*output{}
	}
	r.outputs.byLaunch[launchID{id, attempt}] = o
}

// wrote notes the end of a launch, as its agent reported it. Loop only.
func (r *record) wrote(id cluster.TaskID, attempt int32, exit *clusterpb.Exited) {
	if o := r.outputs.byLaunch[launchID{id, attempt}]; o != nil {
		o.exit = exit
	}
}

// delivery says how many lines of a run that is over have arrived, and which have not.
type delivery struct {
	coming []string // tasks of which lines are still to come
	gone   []string // tasks with lines that may be lost
	lines  int64
	ends   int // launches whose end was reported
}

// progress is whether anything has come since an earlier look.
func (d delivery) progress(before delivery) bool {
	return d.lines != before.lines || d.ends != before.ends
}

// delivery counts the lines of a run that have arrived. A failed run is reported at once,
// so only its tasks that have ended count, with the lines that they wrote. Loop only.
func (c *Coordinator) delivery(rec *record, failed bool) delivery {
	run := rec.status.GetId()
	var d delivery
	held := map[cluster.ExecutorID]int{}
	for _, x := range c.lc.Executors() {
		if x.State != lifecycle.ExecutorLost {
			held[x.ID] = x.Attempt
		}
	}
	unreported := c.unreported(rec)
	for _, o := range rec.outputs.all {
		lines, ended := c.store.Reached(run, o.task.String(), o.attempt)
		switch {
		case o.exit != nil:
			d.ends++
			if ended || lines >= o.exit.GetLines() && (failed || !o.exit.GetOpen()) {
				continue
			}
		case ended || failed && !unreported[o]:
			continue
		}
		if attempt, there := held[o.exec]; !there || attempt != o.executor || unreported[o] {
			d.gone = append(d.gone, o.task.String())
		} else {
			d.coming = append(d.coming, o.task.String())
		}
	}
	d.lines = c.store.Lines(run) // behind Reached: those that have come are among them
	return d
}

// unreported are the launches that are over without a report of their end: the task was
// launched again, or the lifecycle closed it. Loop only.
func (c *Coordinator) unreported(rec *record) map[*output]bool {
	last := map[cluster.TaskID]*output{}
	for _, o := range rec.outputs.all {
		last[o.task] = o
	}
	alive := map[*output]bool{}
	if r := c.lc.Run(); r != nil && r.Spec.ID == rec.status.GetId() {
		for _, t := range r.Tasks {
			if o := last[t.ID]; o != nil && (t.Exit == nil || int32(t.Attempt) != o.attempt) {
				alive[o] = true
			}
		}
	}
	found := map[*output]bool{}
	for _, o := range rec.outputs.all {
		found[o] = o.exit == nil && !alive[o]
	}
	return found
}

// How long the end of a run waits for its last lines: while they come, and for this long
// when none has come. A failed run is news: what its tasks wrote is with the failure too.
const (
	linesQuiet  = 10 * time.Second
	linesMost   = 10 * time.Minute
	failedQuiet = 500 * time.Millisecond
	failedMost  = 20 * time.Second
	linesPoll   = 5 * time.Millisecond
	linesShare  = 4 // the pause before the next look is at least so many times as long as a look
)

// awaitLines waits until every line of a run that is over has been given to its followers.
// A note names the tasks of which lines may be missing. The function between, which may be
// nil, is called after each look at what has come; its error ends the wait and is returned.
func (c *Coordinator) awaitLines(ctx context.Context, st *clusterpb.RunStatus, between func() error) error {
	quiet, most := linesQuiet, linesMost
	failed := st.GetState() == cluster.RunFailed
	if failed {
		quiet, most = failedQuiet, failedMost
	}
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var before delivery
	moved := time.Now()
	for {
		var over bool
		var took time.Duration
		err := c.call(ctx, func() {
			began := time.Now()
			defer func() { took = time.Since(began) }()
			rec := c.runs.find(st.GetId())
			d := c.delivery(rec, failed)
			if d.progress(before) {
				moved, before = time.Now(), d
			}
			if over = len(d.coming) == 0 || time.Since(moved) > quiet; over {
				c.tellMissing(rec, d)
			}
			st.Lines = d.lines
		})
		if err != nil || over {
			return nil
		}
		if between != nil {
			if err := between(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(linesPoll, linesShare*took)):
		}
	}
}

// tellMissing notes, once, of which tasks lines may be missing. Loop only.
func (c *Coordinator) tellMissing(rec *record, d delivery) {
	if rec.outputs.missed || len(d.gone)+len(d.coming) == 0 {
		return
	}
	rec.outputs.missed = true
	for _, m := range []struct {
		tasks []string
		why   string
	}{{d.gone, "the executor was lost"}, {d.coming, "they have not come from the executor; logs shows them if they do"}} {
		if len(m.tasks) > 0 {
			slices.Sort(m.tasks)
			c.note(fmt.Sprintf("run %d: the last lines of %s may be missing: %s", rec.status.GetId(), strings.Join(slices.Compact(m.tasks), ", "), m.why), true)
		}
	}
}

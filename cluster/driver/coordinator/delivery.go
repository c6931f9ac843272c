package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// output is the output of one launch of a task. Its lines and the report of its end, with their
// number, arrive on different streams.
type output struct {
	task     cluster.TaskID
	attempt  int32
	exec     cluster.ExecutorID
	executor int               // the executor's attempt: a replaced executor no longer has these lines
	exit     *clusterpb.Exited // nil until the agent has reported the end
}

// outputs is the output of a run's launches.
type outputs struct {
	all      []*output // in the order of the launches
	byLaunch map[launchID]*output
	missed   bool // noteMissing has added its note
}

// launchID identifies a launch of a run.
type launchID struct {
	task    cluster.TaskID
	attempt int32
}

// launched records a launch, whose lines are then expected. Loop only.
func (r *record) launched(id cluster.TaskID, attempt int32, x *lifecycle.Executor) {
	o := &output{task: id, attempt: attempt, exec: x.ID, executor: x.Attempt}
	r.outputs.all = append(r.outputs.all, o)
	if r.outputs.byLaunch == nil {
		r.outputs.byLaunch = map[launchID]*output{}
	}
	r.outputs.byLaunch[launchID{id, attempt}] = o
}

// exited records the end of a launch as its agent reported it. Loop only.
func (r *record) exited(id cluster.TaskID, attempt int32, exit *clusterpb.Exited) {
	if o := r.outputs.byLaunch[launchID{id, attempt}]; o != nil {
		o.exit = exit
	}
}

// delivery counts the arrived lines of a run that has ended, with the tasks whose lines are
// incomplete.
type delivery struct {
	pending []string // tasks whose lines may still arrive
	lost    []string // tasks whose lines may be lost
	lines   int64
	ends    int // launches whose end was reported
}

// delivery returns the state of a run's lines. A failed run is reported at once, so only its
// ended tasks count. Loop only.
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
			d.lost = append(d.lost, o.task.String())
		} else {
			d.pending = append(d.pending, o.task.String())
		}
	}
	d.lines = c.store.Lines(run) // read after Reached, so that it includes those lines
	return d
}

// unreported returns the launches that have ended without a report: the task was launched
// again, or the lifecycle closed it. Loop only.
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

// How long the end of a run waits for its last lines, without and with progress. For a failed
// run it is shorter: the failure itself has the last lines.
const (
	linesQuiet  = 10 * time.Second
	linesLimit  = 10 * time.Minute
	failedQuiet = 500 * time.Millisecond
	failedLimit = 20 * time.Second
	linesPoll   = 5 * time.Millisecond
	linesShare  = 4 // the pause is at least this multiple of the time of a check
)

// awaitLines waits until every line of a run that has ended was stored and sent to its
// followers. A note names tasks whose lines may be missing. between, unless nil, is called
// after each check; its error ends the wait and is returned.
func (c *Coordinator) awaitLines(ctx context.Context, st *clusterpb.RunStatus, between func() error) error {
	quiet, most := linesQuiet, linesLimit
	failed := st.GetState() == cluster.RunFailed
	if failed {
		quiet, most = failedQuiet, failedLimit
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
			if d.lines != before.lines || d.ends != before.ends { // something has arrived
				moved, before = time.Now(), d
			}
			if over = len(d.pending) == 0 || time.Since(moved) > quiet; over {
				c.noteMissing(rec, d)
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
		if c.sleep(ctx, max(linesPoll, linesShare*took)) != nil {
			return nil
		}
	}
}

// noteMissing adds a note, once, with the tasks whose lines may be missing. Loop only.
func (c *Coordinator) noteMissing(rec *record, d delivery) {
	if rec.outputs.missed || len(d.lost)+len(d.pending) == 0 {
		return
	}
	rec.outputs.missed = true
	for _, m := range []struct {
		tasks []string
		why   string
	}{{d.lost, "the executor was lost"}, {d.pending, "the executor has not sent them; logs shows them if they arrive"}} {
		if len(m.tasks) > 0 {
			slices.Sort(m.tasks)
			c.note(fmt.Sprintf("run %d: the last lines of %s may be missing: %s", rec.status.GetId(),
				strings.Join(slices.Compact(m.tasks), ", "), m.why), true)
		}
	}
}

package coordinator

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// Scalar is one value a program wrote for TensorBoard.
type Scalar struct {
	Tag      string
	Step     int64
	Value    float64
	WallTime float64 // seconds since 1970
	File     string  // relative to the folder
}

// EventReader opens a reader of the scalars in the event files below a folder. Each
// call of the function it returns gives those that are new.
type EventReader func(dir string) (next func() ([]Scalar, error))

// EventFile is an event file that the driver writes.
type EventFile interface {
	Append(scalars []Scalar) error
	Remove() error
	Path() string
}

// EventFiles are how event files are read and written.
type EventFiles struct {
	Read  EventReader
	Write func(dir string) EventFile // nil: none are written
}

// eventReading is the event files of the run that was last looked at. Owned by WatchEvents.
type eventReading struct {
	files EventFiles
	run   int32
	next  func() ([]Scalar, error)
	own   EventFile // what the program reports, unless it writes event files itself; nil: not written
	since time.Time // when there was something to write first
	alone bool      // the program has written none so far
}

// A program that reports metrics may also write them for TensorBoard, as Keras's callback does.
// It has ownEventsAfter to begin with that.
const ownEventsAfter = 5 * time.Second

// mostUnwritten bounds the reports that wait to be written to an event file.
const mostUnwritten = 100_000

// eventLooks are what others ask of WatchEvents. Any goroutine may use it.
type eventLooks struct {
	asked    chan chan<- struct{} // asks WatchEvents to read now, and to close it then
	watching atomic.Bool          // WatchEvents answers them
}

// await has the event files read to their end, so that a run's last values are
// those of its last step.
func (l *eventLooks) await(ctx context.Context) {
	if !l.watching.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventsMost)
	defer cancel()
	done := make(chan struct{})
	select {
	case l.asked <- done:
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// WatchEvents feeds the active run's progress from its event files until ctx ends,
// for programs that neither report nor let Keras do it. For programs that report and write no
// event files it writes one.
func (c *Coordinator) WatchEvents(ctx context.Context, files EventFiles) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	c.files.events.watching.Store(true)
	defer c.files.events.watching.Store(false)
	r := eventReading{files: files}
	for {
		var done chan<- struct{}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case done = <-c.files.events.asked:
		}
		if err := c.readEvents(ctx, &r); err != nil {
			return // the cluster is over
		}
		if done != nil {
			close(done)
		}
	}
}

// readEvents takes what is new in the current run's event files.
func (c *Coordinator) readEvents(ctx context.Context, r *eventReading) error {
	var dir string
	var id int32
	err := c.call(ctx, func() {
		if rec := c.runs.current(); rec != nil && !rec.loaded && (rec.over.IsZero() || time.Since(rec.over) < filesMost) {
			dir, id = rec.status.GetLogDir(), rec.status.GetId()
		}
	})
	if err != nil || id == 0 {
		return err
	}
	if id != r.run {
		r.run, r.next = id, r.files.Read(c.files.here(dir))
		r.own, r.since, r.alone = nil, time.Time{}, true
	}
	scalars, err := r.next()
	if err != nil {
		c.log.Warn("read event files", "dir", dir, "err", err)
	}
	if len(scalars) == 0 {
		return c.writeEvents(ctx, r, dir)
	}
	if r.alone = false; r.own != nil {
		if err := c.removeOwn(r.own); err != nil {
			c.log.Warn("remove the driver's event file", "dir", dir, "err", err)
		}
		r.own = nil
	}
	return c.call(ctx, func() { c.scalars(id, scalars) })
}

// removeOwn removes the driver's event file, also where the spool has carried it.
func (c *Coordinator) removeOwn(own EventFile) error {
	if c.cfg.Spool == nil {
		return own.Remove()
	}
	name, err := filepath.Rel(c.cfg.Spool.Folder(), own.Path())
	if err == nil {
		err = c.cfg.Spool.Remove(filepath.ToSlash(name))
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// writeEvents writes what the program has reported to an event file.
func (c *Coordinator) writeEvents(ctx context.Context, r *eventReading, dir string) error {
	var unwritten []Scalar
	err := c.call(ctx, func() {
		rec := c.runs.find(r.run)
		if rec == nil || len(rec.unwritten) == 0 {
			return
		}
		if r.since.IsZero() {
			r.since = time.Now()
		}
		if !rec.over.IsZero() || time.Since(r.since) >= ownEventsAfter {
			unwritten, rec.unwritten = rec.unwritten, nil
		}
	})
	if err != nil || len(unwritten) == 0 || !r.alone || r.files.Write == nil {
		return err
	}
	if r.own == nil {
		r.own = r.files.Write(c.files.here(dir))
	}
	if err := r.own.Append(unwritten); err != nil {
		return c.call(ctx, func() { c.noteOnce("metrics for TensorBoard could not be written: " + err.Error()) })
	}
	return nil
}

// How long a run's end waits for its event files to be read, and a bad one before that for
// them to come from executors with disks of their own: it is news, and a step that comes
// later is but kept in the run's record.
const (
	eventsMost = 2 * time.Second
	eventsLate = 500 * time.Millisecond
)

// awaitSteps waits for what a run's end tells of its last step.
func (c *Coordinator) awaitSteps(ctx context.Context, st *clusterpb.RunStatus) {
	switch {
	case st.GetState() == lifecycle.RunFinished.String():
		c.awaitFiles(ctx, st.GetId())
	case st.GetProgress().GetSource() == fromEvents: // the program does not report its steps
		_ = c.awaitOwed(ctx, st.GetId(), eventsLate) // as far as they are here
	}
	c.files.events.await(ctx)
}

// fromEvents is the source of a run's progress that its event files tell.
const fromEvents = "events"

// reportedAs is the name by which Keras reports a metric that its TensorBoard callback writes
// under this name; "" where that writes none so.
func reportedAs(name string) string {
	if metric, ok := strings.CutPrefix(name, "train/epoch_"); ok {
		return metric
	}
	if metric, ok := strings.CutPrefix(name, "validation/epoch_"); ok {
		return "val_" + metric
	}
	if metric, ok := strings.CutPrefix(name, "validation/evaluation_"); ok { // of the same evaluations
		return "val_" + strings.TrimSuffix(metric, "_vs_iterations")
	}
	return ""
}

// reports returns whether the program itself reports a metric.
func (r *record) reports(name string) bool {
	return slices.ContainsFunc(r.status.Series, func(s *clusterpb.Series) bool { return s.GetName() == name && s.GetTask() != fromEvents })
}

// single removes what event files said of a metric that the program reports: each metric is shown
// once.
func (r *record) single(name string) {
	r.status.Series = slices.DeleteFunc(r.status.Series, func(s *clusterpb.Series) bool {
		twin := s.GetTask() == fromEvents && reportedAs(s.GetName()) == name
		if twin {
			delete(r.status.GetProgress().GetMetrics(), s.GetName())
		}
		return twin
	})
}

// scalars adds what event files said to a run's metrics. Steps and metrics that the
// program reports itself win over it. Loop only.
func (c *Coordinator) scalars(run int32, scalars []Scalar) {
	rec := c.runs.find(run)
	if rec == nil || rec.loaded {
		return
	}
	p := rec.status.GetProgress()
	if p == nil {
		p = &clusterpb.Report{Metrics: map[string]float64{}, Source: fromEvents}
		rec.status.Progress = p
	}
	for _, s := range scalars {
		name := s.Tag
		// Keras's callback writes train/epoch_loss and validation/epoch_loss.
		if dir, _, found := strings.Cut(s.File, "/"); found {
			name = dir + "/" + name
		}
		if rec.reports(reportedAs(name)) {
			continue
		}
		p.Metrics[name] = s.Value
		rec.point(name, fromEvents, s.Step, s.Value)
		if p.GetSource() == fromEvents && s.Step > p.GetStep() {
			p.Step, p.WallTime = s.Step, s.WallTime
			c.handle(lifecycle.StepMoved{})
		}
	}
	if !rec.over.IsZero() {
		c.keepRecord(rec) // its end was recorded without them
	}
	c.subs.wake()
}

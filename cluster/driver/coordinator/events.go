package coordinator

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// Scalar is one value of an event file for TensorBoard.
type Scalar struct {
	Tag      string
	Step     int64
	Value    float64
	WallTime float64 // seconds since 1970
	File     string  // relative to the folder
}

// EventFile is an event file that the driver writes.
type EventFile interface {
	Append(scalars []Scalar) error
	Remove() error
	Path() string
}

// EventFiles reads and writes event files. The driver provides it.
type EventFiles struct {
	// Read opens a reader of the event files below a folder. Each call of next returns the new scalars.
	Read  func(dir string) (next func() ([]Scalar, error))
	Write func(dir string) EventFile // nil: no files are written
}

// eventReading is the state of reading the current run's event files. Owned by WatchEvents.
type eventReading struct {
	files EventFiles
	run   int32
	next  func() ([]Scalar, error)
	own   EventFile // the driver's file of reported metrics; nil: not written
	since time.Time // when the first metric was reported
	alone bool      // the program has written no event files so far
}

// The driver waits ownEventsAfter before it writes reported metrics to an event file, because
// the program may write event files itself, e.g. by Keras's callback.
const ownEventsAfter = 5 * time.Second

// maxUnwritten bounds the reports that wait to be written to an event file.
const maxUnwritten = 100_000

// eventLooks passes requests to WatchEvents. Any goroutine may use it.
type eventLooks struct {
	asked    chan chan<- struct{} // has WatchEvents read now and then close the channel
	watching atomic.Bool          // WatchEvents is running
}

// await waits until the event files were read to their end, so that a run's last values are
// known.
func (l *eventLooks) await(ctx context.Context) {
	if !l.watching.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, eventsLimit)
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

// WatchEvents updates the active run's progress from its event files until ctx ends, for
// programs that report nothing. For programs that report and write no event files it writes
// one. One goroutine may call it.
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

// readEvents reads new scalars of the current run's event files.
func (c *Coordinator) readEvents(ctx context.Context, r *eventReading) error {
	var dir string
	var id int32
	err := c.call(ctx, func() {
		if rec := c.runs.current(); rec != nil && !rec.loaded && (rec.over.IsZero() || time.Since(rec.over) < filesLimit) {
			dir, id = rec.status.GetLogDir(), rec.status.GetId()
		}
	})
	if err != nil || id == 0 {
		return err
	}
	if id != r.run {
		r.run, r.next = id, r.files.Read(c.files.localPath(dir))
		r.own, r.since, r.alone = nil, time.Time{}, true
	}
	scalars, err := r.next()
	if err != nil {
		c.log.Warn("status and history may lack values of TensorBoard's event files; TensorBoard and the run go on",
			"dir", dir, "err", err)
	}
	if len(scalars) == 0 {
		return c.writeEvents(ctx, r, dir)
	}
	if r.alone = false; r.own != nil {
		if err := c.removeOwn(r.own); err != nil {
			c.log.Warn("TensorBoard may show metrics twice, because the driver's own event file stays", "dir", dir, "err", err)
		}
		r.own = nil
	}
	return c.call(ctx, func() { c.scalars(id, scalars) })
}

// removeOwn removes the driver's event file, also in the remote directory.
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

// writeEvents writes reported metrics to an event file.
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
		r.own = r.files.Write(c.files.localPath(dir))
	}
	if err := r.own.Append(unwritten); err != nil {
		text := "TensorBoard will lack metrics of the run, which goes on: " + withLimit(err.Error())
		return c.call(ctx, func() { c.noteOnce(text) })
	}
	return nil
}

// How long a run's end waits for its event files to be read, and before that, if it failed, for
// executors with disks of their own to send them: later steps are only recorded.
const (
	eventsLimit = 2 * time.Second
	eventsLate  = 500 * time.Millisecond
)

// awaitSteps waits until a run's last step is known.
func (c *Coordinator) awaitSteps(ctx context.Context, st *clusterpb.RunStatus) {
	switch {
	case st.GetState() == lifecycle.RunFinished.String():
		c.awaitFiles(ctx, st.GetId())
	case st.GetProgress().GetSource() == fromEvents: // known from event files only
		_ = c.awaitPending(ctx, st.GetId(), eventsLate) // incomplete after a timeout
	}
	c.files.events.await(ctx)
}

// fromEvents is the source of progress from event files.
const fromEvents = "events"

// reportedAs returns the name under which Keras reports a metric that its TensorBoard callback
// writes as name; "" if there is none.
func reportedAs(name string) string {
	if metric, ok := strings.CutPrefix(name, "train/epoch_"); ok {
		return metric
	}
	if metric, ok := strings.CutPrefix(name, "validation/epoch_"); ok {
		return "val_" + metric
	}
	if metric, ok := strings.CutPrefix(name, "validation/evaluation_"); ok { // of the same evaluations as epoch_
		return "val_" + strings.TrimSuffix(metric, "_vs_iterations")
	}
	return ""
}

// reports returns whether the program itself reports a metric.
func (r *record) reports(name string) bool {
	return slices.ContainsFunc(r.status.Series,
		func(s *clusterpb.Series) bool { return s.GetName() == name && s.GetTask() != fromEvents })
}

// single removes the series of event files for a metric that the program reports, so that each
// metric is shown once.
func (r *record) single(name string) {
	r.status.Series = slices.DeleteFunc(r.status.Series, func(s *clusterpb.Series) bool {
		twin := s.GetTask() == fromEvents && reportedAs(s.GetName()) == name
		if twin {
			delete(r.status.GetProgress().GetMetrics(), s.GetName())
		}
		return twin
	})
}

// scalars adds values of event files to a run's metrics. Reported steps and metrics take
// precedence. Loop only.
func (c *Coordinator) scalars(run int32, scalars []Scalar) {
	rec := c.runs.find(run)
	if rec == nil || rec.loaded {
		return
	}
	p := cmp.Or(rec.status.GetProgress(), &clusterpb.Report{Metrics: map[string]float64{}, Source: fromEvents})
	rec.status.Progress = p
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
		c.writeRecord(rec) // the record of its end lacks them
	}
	c.subs.progressed()
}

package cluster

import (
	"context"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
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

// WatchEvents feeds the active run's progress from its event files until ctx ends,
// for programs that neither report nor let Keras do it.
func (c *Coordinator) WatchEvents(ctx context.Context, open EventReader) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var run int32
	var next func() ([]Scalar, error)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var dir string
		var id int32
		err := c.call(ctx, func() {
			if rec := c.current(); rec != nil && !rec.loaded && (rec.over.IsZero() || time.Since(rec.over) < 3*time.Second) {
				dir, id = rec.status.GetLogDir(), rec.status.GetId()
			}
		})
		if err != nil {
			return
		}
		if id == 0 {
			continue
		}
		if id != run {
			run, next = id, open(c.here(dir))
		}
		scalars, err := next()
		if err != nil {
			c.log.Warn("read event files", "dir", dir, "err", err)
		}
		if len(scalars) > 0 {
			c.post(func() { c.scalars(id, scalars) })
		}
	}
}

// scalars adds what event files said to a run's metrics. Steps and metrics that the
// program reports itself win over it. Loop only.
func (c *Coordinator) scalars(run int32, scalars []Scalar) {
	rec := c.find(run)
	if rec == nil || rec.loaded {
		return
	}
	p := rec.status.GetProgress()
	if p == nil {
		p = &clusterpb.Report{Metrics: map[string]float64{}, Source: "events"}
		rec.status.Progress = p
	}
	for _, s := range scalars {
		name := s.Tag
		// Keras's callback writes train/epoch_loss and validation/epoch_loss.
		if dir, _, found := strings.Cut(s.File, "/"); found {
			name = dir + "/" + name
		}
		p.Metrics[name] = s.Value
		rec.point(name, "events", s.Step, s.Value)
		if p.GetSource() == "events" && s.Step > p.GetStep() {
			p.Step, p.WallTime = s.Step, s.WallTime
			c.handle(evStep{})
		}
	}
	c.wake()
}

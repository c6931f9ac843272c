package coordinator

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// handle passes an event to the lifecycle and performs its actions. Loop only.
func (c *Coordinator) handle(e lifecycle.Event) {
	c.perform(c.lc.Step(e))
	switch e.(type) {
	case lifecycle.UsageReported:
		c.subs.used()
	case lifecycle.StepMoved:
		c.subs.progressed()
	default:
		c.subs.wake()
	}
}

func (c *Coordinator) perform(actions []lifecycle.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case lifecycle.ReplaceExecutor:
			c.replace(a.Exec, a.Elsewhere)
			if o, ok := c.execs.pendingFiles[a.Exec]; ok {
				c.sweep(o.run) // its unsent files are lost
			}
		case lifecycle.SendInstruction:
			if conn := c.execs.agents[a.Exec]; conn != nil {
				conn.send(a.What)
			}
		case lifecycle.SetTimer:
			c.timer(a.Name, a.After)
		case lifecycle.ReservationReady:
			c.reserved.answer = &clusterpb.ReserveUpdate{Ready: true}
			c.warnOfFewCores()
			c.reserved.network = c.networkLine()
			c.noteSharedHost()
			c.saveState()
		case lifecycle.ReservationFailed:
			c.reserved.answer = &clusterpb.ReserveUpdate{Failure: a.Failure}
		case lifecycle.Note:
			c.note(a.Text, a.Warning)
		case lifecycle.SettleFiles:
			c.settleFiles(a.Run, a.Attempt)
		case lifecycle.Release:
			c.release(a.Reason)
		case lifecycle.LaunchTask:
			c.launch(a)
		case lifecycle.RunEntered:
			rec := c.runs.find(c.lc.Run().Spec.ID)
			rec.entered = true
			c.entered(rec, c.runs.program.GetOptions().GetWorkingDir())
		case lifecycle.RunOver:
			c.runOver(nil)
		case lifecycle.StartFailed:
			c.runOver(a.Failure)
		case lifecycle.RunGone:
			c.runGone(a.Run)
		case lifecycle.RunChanged:
			c.openBarriers()
			c.recordRestarts()
		}
	}
}

// recordRestarts records a restart at once, so that a later driver counts it. Loop only.
func (c *Coordinator) recordRestarts() {
	lr := c.lc.Run()
	if lr == nil {
		return
	}
	if rec := c.runs.find(lr.Spec.ID); rec != nil && rec.over.IsZero() &&
		(int32(lr.Restarts) != rec.status.GetRestarts() || int32(lr.Losses) != rec.status.GetLosses()) {
		c.fill(rec, lr)
		c.writeRecord(rec)
	}
}

func (c *Coordinator) timer(name string, after time.Duration) {
	if name == "idle" {
		c.clients.idleSince = time.Time{}
		if after > 0 {
			c.clients.idleSince = time.Now()
		}
	}
	c.after(name, after, func() { c.handle(lifecycle.TimerFired{Name: name}) })
}

func (c *Coordinator) note(text string, warning bool) {
	c.log.Info("note", "text", text)
	n := &clusterpb.Note{Text: text, Warning: warning, UnixNano: time.Now().UnixNano()}
	if rec := c.runs.current(); rec != nil && rec.over.IsZero() {
		n.Run = rec.status.GetId()
	}
	c.notes.add(n)
	c.subs.note(n)
}

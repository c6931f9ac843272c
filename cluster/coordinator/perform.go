package coordinator

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// handle steps the lifecycle and does what it says. Loop only.
func (c *Coordinator) handle(e lifecycle.Event) { c.perform(c.lc.Step(e)) }

func (c *Coordinator) perform(actions []lifecycle.Action) {
	for _, a := range actions {
		switch a := a.(type) {
		case lifecycle.ReplaceExecutor:
			c.replace(a.Exec)
			if c.lc.Run() != nil {
				c.sweep(c.lc.Run().Spec.ID) // what it had not sent never comes
			}
		case lifecycle.SendInstruction:
			if conn := c.agents[a.Exec]; conn != nil {
				conn.send(a.What)
			}
		case lifecycle.SetTimer:
			c.timer(a.Name, a.After)
		case lifecycle.ReservationReady:
			c.reserve = &clusterpb.ReserveUpdate{Ready: true}
			c.saveState()
		case lifecycle.ReservationFailed:
			c.reserve = &clusterpb.ReserveUpdate{Failure: a.Failure}
		case lifecycle.Note:
			c.note(a.Text, a.Warning)
		case lifecycle.Release:
			c.release(a.Reason)
		case lifecycle.LaunchTask:
			c.launch(a)
		case lifecycle.RunEntered:
			c.find(c.lc.Run().Spec.ID).entered = true
		case lifecycle.RunOver:
			c.runOver(nil)
		case lifecycle.StartFailed:
			c.runOver(a.Failure)
		case lifecycle.RunGone:
			c.find(c.lc.Run().Spec.ID).gone = true
			c.sweep(c.lc.Run().Spec.ID)
		case lifecycle.RunChanged:
			c.openBarriers()
		}
	}
	c.wake()
}

func (c *Coordinator) stopTimers() {
	for _, t := range c.timers {
		t.Stop()
	}
}

func (c *Coordinator) timer(name string, after time.Duration) {
	if name == "idle" {
		c.idleSince = time.Time{}
		if after > 0 {
			c.idleSince = time.Now()
		}
	}
	c.after(name, after, func() { c.handle(lifecycle.TimerFired{Name: name}) })
}

// after calls f in the loop after a while; the timer replaces one of the same name,
// and none is left when the while is 0.
func (c *Coordinator) after(name string, d time.Duration, f func()) {
	if t := c.timers[name]; t != nil {
		t.Stop()
		delete(c.timers, name)
	}
	if d <= 0 {
		return
	}
	var t *time.Timer
	t = time.AfterFunc(d, func() {
		c.post(func() {
			if c.timers[name] == t { // not replaced while it fired
				delete(c.timers, name)
				f()
			}
		})
	})
	c.timers[name] = t
}

func (c *Coordinator) note(text string, warning bool) {
	c.log.Info("note", "text", text)
	n := &clusterpb.Note{Text: text, Warning: warning}
	c.notes.add(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	for f := range c.followers {
		f.note(n)
	}
}

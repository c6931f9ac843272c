package cluster

import (
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// handle steps the lifecycle and does what it says. Loop only.
func (c *Coordinator) handle(e event) { c.perform(c.lc.step(e)) }

func (c *Coordinator) perform(actions []action) {
	for _, a := range actions {
		switch a := a.(type) {
		case actReplace:
			c.replace(a.exec)
			if c.lc.Run() != nil {
				c.sweep(c.lc.Run().spec.id) // what it had not sent never comes
			}
		case actSend:
			if conn := c.agents[a.exec]; conn != nil {
				conn.send(a.what)
			}
		case actTimer:
			c.timer(a.name, a.after)
		case actReady:
			c.reserve = &clusterpb.ReserveUpdate{Ready: true}
			c.saveState()
		case actReserveFailed:
			c.reserve = &clusterpb.ReserveUpdate{Failure: a.failure}
		case actNote:
			c.note(a.text, a.warning)
		case actRelease:
			c.release(a.reason)
		case actLaunch:
			c.launch(a)
		case actRunEntered:
			c.find(c.lc.Run().spec.id).entered = true
		case actRunOver:
			c.runOver(nil)
		case actStartFailed:
			c.runOver(a.failure)
		case actRunGone:
			c.find(c.lc.Run().spec.id).gone = true
			c.sweep(c.lc.Run().spec.id)
		case actRunChanged:
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
	c.after(name, after, func() { c.handle(evTimer{name}) })
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

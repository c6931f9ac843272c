package coordinator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/lifecycle"
)

// allocate asks the engine for executors, or takes up those of an earlier driver.
// Clients and agents are answered meanwhile. over says that the cluster was released
// before the engine had answered.
func (c *Coordinator) allocate(ctx context.Context, execs []cluster.ExecutorRequest) (over bool, err error) {
	type answer struct {
		alloc cluster.Allocation
		err   error
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	if r, ok := c.cfg.Backend.(cluster.RemoteEngine); ok {
		for _, e := range execs {
			c.handle(lifecycle.Pending{Exec: e.ID, Why: r.InitialStatus(c.cfg.Request)})
		}
	}
	answers := make(chan answer, 1)
	c.work.Go(func() {
		alloc, err := c.ask(asking, execs)
		answers <- answer{alloc, err}
	})
	for {
		select {
		case f := <-c.calls:
			f()
		case err := <-c.reserved.released:
			c.serveFor(ctx, reasonMost, c.reserved.told)
			cancel()
			a := <-answers
			switch {
			case a.alloc != nil:
				how, why := c.finalStatus(c.lc.ReleaseReason())
				err = errors.Join(err, a.alloc.Release(c.working, how, why))
			case c.cfg.Recovered.Saved != nil: // nobody will know of it when this driver is gone
				c.reserved.parting = "warning: what an earlier driver reserved is not given back: the engine has not answered; it ends what it hears nothing of"
			}
			return true, err
		case a := <-answers:
			if a.err != nil {
				return false, c.refused(ctx, a.err)
			}
			c.reserved.alloc = a.alloc
			close(c.reserved.allocated)
			c.saveState()
			if c.cfg.Recovered.Saved != nil {
				if c.cfg.Recovered.Address != "" && c.cfg.Recovered.Address != c.cfg.Address {
					c.work.Go(func() { c.takeAddress(c.working) })
				}
				c.recovered()
			}
			return false, nil
		}
	}
}

// recovered takes what the engine kept of an earlier driver's before the cluster may be
// ready: of executors that are gone agents may still speak.
func (c *Coordinator) recovered() {
	if apps := applications(c.reserved.alloc); len(apps) > 0 && c.cfg.Recovered.Allocation != "" {
		if is := apps[len(apps)-1].ID; is != c.cfg.Recovered.Allocation {
			c.note(fmt.Sprintf("%s has ended; %s is in its place", c.cfg.Recovered.Allocation, is), true)
		}
	}
	for {
		select {
		case e := <-c.reserved.alloc.Events():
			c.engineEvent(e)
		default:
			c.handle(lifecycle.Recovered{})
			return
		}
	}
}

// ask is the engine's part of allocate.
func (c *Coordinator) ask(ctx context.Context, execs []cluster.ExecutorRequest) (cluster.Allocation, error) {
	req := cluster.Request{
		Cluster: c.cfg.Name, Identity: c.cfg.Authority.ID(), Executors: execs, Reserve: c.cfg.Request, AgentConfig: c.agentConfig(execs), Program: c.cfg.Program, StateDir: c.cfg.StateDir,
		Waiting: func(why string) {
			c.post(func() {
				for _, e := range execs {
					c.handle(lifecycle.Pending{Exec: e.ID, Why: why})
				}
			})
		},
	}
	if err := c.packEnvironment(ctx); err != nil {
		return nil, err
	}
	if c.cfg.Recovered.Saved != nil {
		return c.cfg.Backend.Recover(ctx, req, c.cfg.Recovered.Saved)
	}
	return c.cfg.Backend.Allocate(ctx, req)
}

// refused tells whoever asked before the cluster is gone.
func (c *Coordinator) refused(ctx context.Context, err error) error {
	c.reserved.why = "not reserved: " + err.Error()
	c.record(true)
	c.handle(lifecycle.Refused{Failure: &clusterpb.Failure{Kind: "engine", Summary: err.Error(), ExitCode: 69}})
	c.serveFor(ctx, 2*time.Second, nil) // it may be about to ask
	return fmt.Errorf("allocate: %w", err)
}

func (c *Coordinator) engineEvent(e cluster.Event) {
	switch e := e.(type) {
	case cluster.Pending:
		c.handle(lifecycle.Pending{Exec: e.Executor, Why: e.Why})
	case cluster.Reallocated:
		c.handle(lifecycle.Reallocated{Exec: e.Executor, Attempt: e.Attempt})
	case cluster.Granted:
		c.execs.granted[e.Executor] = e
		c.saveSoon() // what was granted is what a later driver must find
		c.handle(lifecycle.Granted{Exec: e.Executor, Attempt: e.Attempt, Host: e.Host, Recovered: e.Recovered})
	case cluster.Warning:
		c.saveSoon() // such as which nodes are left out
		c.note(e.Text, true)
		c.subs.wake()
	case cluster.StateChanged:
		c.saveSoon()
	case cluster.BackedOff:
		c.saveSoon()
		c.handle(lifecycle.BackedOff{Attempts: e.Attempts, Why: e.Why})
	case cluster.Terminated:
		c.handle(lifecycle.EngineEnded{Cause: e.Cause})
	case cluster.Lost:
		c.handle(lifecycle.LastLines{Exec: e.Executor, Attempt: e.Attempt, Lines: e.LastLines})
		c.handle(lifecycle.EngineLost{Exec: e.Executor, Attempt: e.Attempt, Cause: e.Cause})
	}
}

// replace asks the engine for another executor; a failure is a loss.
func (c *Coordinator) replace(id cluster.ExecutorID) {
	attempt := c.lc.Executor(id).Attempt
	if conn := c.execs.agents[id]; conn != nil {
		conn.close("its executor is replaced")
		delete(c.execs.agents, id)
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.working, time.Minute)
		defer cancel()
		select {
		case <-c.reserved.allocated:
		case <-ctx.Done():
			return // nothing was granted
		}
		if err := c.reserved.alloc.Replace(ctx, id); err != nil {
			c.post(func() { c.handle(lifecycle.EngineLost{Exec: id, Attempt: attempt, Cause: err.Error()}) })
			return
		}
		c.post(c.saveState) // a later driver must find this executor, not the old one
	})
}

// reasonMost is how long a client that waits for a reservation, or is about to ask, may take to
// read why it failed.
const reasonMost = 200 * time.Millisecond

func (c *Coordinator) release(reason string) {
	if c.reserved.releasing {
		return
	}
	c.reserved.releasing, c.reserved.why = true, cmp.Or(c.reserved.why, reason)
	c.log.Info("release", "reason", reason)
	if c.reserved.alloc == nil { // nothing was granted
		c.record(true)
		c.reserved.released <- nil
		return
	}
	how, why := c.finalStatus(reason)
	go func() { // its end is awaited by the loop
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var err error
		if c.cfg.TensorBoard != nil {
			err = c.cfg.TensorBoard.Close(ctx)
		}
		undone := c.reserved.alloc.Release(ctx, how, why)
		err = errors.Join(err, undone)
		parting := c.files.farewell()
		if undone != nil { // nobody will know of it when this driver is gone
			parting = strings.TrimSpace(fmt.Sprintf("warning: not everything was given back: %v\n%s", undone, parting))
		}
		c.post(func() {
			if c.reserved.parting = parting; parting != "" {
				c.note(parting, true)
			}
			c.record(true)
			c.reserved.released <- err
		})
	}()
}

// saveShare is how much of its time the loop may save, as a divisor: a reservation of many
// executors is granted in as many events, and a home's disk may be slow.
const saveShare = 5

// saveSoon saves what the engine has told when that is handled: at once, unless it was
// done a moment ago. A driver that is killed before it loses what was granted. Loop only.
func (c *Coordinator) saveSoon() {
	if c.timers["save"] == nil {
		c.after("save", max(time.Nanosecond, time.Until(c.reserved.saveNext)), c.saveState)
	}
}

// saveState writes what a later driver must know. Loop only.
func (c *Coordinator) saveState() {
	if c.reserved.alloc == nil {
		return // it is saved once there is something to take up
	}
	began := time.Now()
	defer func() {
		c.reserved.saveNext = time.Now().Add(max((saveShare-1)*time.Since(began), c.cfg.Timing.SaveEvery))
	}()
	if err := c.cfg.Hooks.SaveState(c.reserved.alloc.ID(), c.reserved.alloc.Saved(), c.runs.lastRun, c.clients.detached); err != nil {
		c.note("the cluster's state could not be saved, a driver that dies now cannot be replaced: "+err.Error(), true)
	}
	c.record(false)
}

// record writes what is to be known of the cluster when it is over. Loop only.
func (c *Coordinator) record(over bool) {
	if c.cfg.Hooks.Record == nil {
		return
	}
	var places []byte
	if k, ok := c.reserved.alloc.(cluster.ApplicationHistory); ok {
		places = k.LogLocations()
	}
	if err := c.cfg.Hooks.Record(applications(c.reserved.alloc), places, c.runs.lastRun, over, c.reserved.why); err != nil {
		c.log.Warn("what history and logs need after the cluster's end could not be written", "err", err)
	}
}

// applications are those of an allocation; nil where its engine has no names for people.
func applications(a cluster.Allocation) []cluster.Application {
	if h, ok := a.(cluster.ApplicationHistory); ok {
		return h.Applications()
	}
	return nil
}

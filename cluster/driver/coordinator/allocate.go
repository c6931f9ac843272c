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
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// reservation is the engine's allocation, from the request to the release. Owned by the loop,
// except that others may read alloc once allocated is closed, and lastNote once done is closed.
type reservation struct {
	alloc         cluster.Allocation       // nil until the engine has answered
	allocated     chan struct{}            // closed once alloc is set
	answer        *clusterpb.ReserveUpdate // the result of the reservation, nil
	failureRead   chan struct{}            // closed once a client has read that it failed
	failureShown  bool
	saveNext      time.Time // saveSoon waits until then
	releasing     bool
	releaseReason string     // the reason of the release
	released      chan error // the result of the release, cap 1
	lastNote      string     // a warning for Shutdown's last message
	network       string     // ClusterStatus.network
}

// finalStatus returns the cluster's final status for the engine, given the reason of its
// release. Loop only.
func (c *Coordinator) finalStatus(reason string) (how cluster.FinalStatus, why string) {
	if f := c.reserved.answer.GetFailure(); f != nil {
		return cluster.Failed, summary(f.GetSummary())
	}
	if !c.cfg.Request.GetOneRun() {
		return cluster.Succeeded, ""
	}
	if c.runs.startError != "" {
		return cluster.Failed, summary(c.runs.startError)
	}
	rec := c.runs.current()
	if rec == nil {
		return cluster.Killed, "ended before its run began: " + summary(reason)
	}
	st := c.status(rec)
	said := strings.TrimSpace(summary(st.GetFailure().GetSummary()))
	switch st.GetState() {
	case "finished":
		return cluster.Succeeded, ""
	case "failed":
		return cluster.Failed, cmp.Or(said, "its run failed")
	}
	return cluster.Killed, cmp.Or(said, summary(reason))
}

// allocate requests the executors from the engine, or recovers those of an earlier driver, and
// serves clients and agents meanwhile. over says that the cluster was released before the
// engine answered.
func (c *Coordinator) allocate(ctx context.Context, execs []cluster.ExecutorRequest) (over bool, err error) {
	type answer struct {
		alloc cluster.Allocation
		err   error
	}
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	if r, ok := c.cfg.Backend.(cluster.RemoteEngine); ok {
		for _, e := range execs {
			c.handle(cluster.Pending{Executor: e.ID, Why: r.InitialStatus(c.cfg.Request)})
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
			c.serveFor(ctx, reasonWait, c.reserved.failureRead)
			cancel()
			a := <-answers
			switch {
			case a.alloc != nil:
				how, why := c.finalStatus(c.lc.ReleaseReason())
				err = errors.Join(err, a.alloc.Release(c.working, how, why))
			case c.cfg.Recovered.Saved != nil: // nobody will know of it when this driver is gone
				c.reserved.lastNote = "warning: the executors that an earlier driver reserved were not released, " +
					"because the engine did not answer; it ends them when it hears nothing from them"
			}
			return true, err
		case a := <-answers:
			if a.err != nil {
				return false, c.allocationFailed(ctx, a.err)
			}
			c.reserved.alloc = a.alloc
			close(c.reserved.allocated)
			c.saveState()
			c.subs.wake() // its ID is known
			if c.cfg.Recovered.Saved != nil {
				if c.cfg.Recovered.Address != "" && c.cfg.Recovered.Address != c.cfg.Address {
					c.work.Go(func() { c.publishRecovered(c.working) })
				}
				c.recovered()
			}
			return false, nil
		}
	}
}

// recovered handles the engine's pending events about an earlier driver's executors before the
// cluster may become ready: agents of lost executors may still send messages.
func (c *Coordinator) recovered() {
	if apps := applications(c.reserved.alloc); len(apps) > 0 && c.cfg.Recovered.Allocation != "" {
		if is := apps[len(apps)-1].ID; is != c.cfg.Recovered.Allocation {
			c.note(fmt.Sprintf("%s has ended; %s replaces it", c.cfg.Recovered.Allocation, is), true)
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

// ask calls the engine for allocate.
func (c *Coordinator) ask(ctx context.Context, execs []cluster.ExecutorRequest) (cluster.Allocation, error) {
	req := cluster.Request{
		Cluster: c.cfg.Name, Identity: c.cfg.Authority.ID(), Executors: execs, Reserve: c.cfg.Request,
		AgentConfig: c.agentConfig(execs), Program: c.cfg.Program, StateDir: c.cfg.StateDir,
		Waiting: func(why string) {
			c.post(func() {
				for _, e := range execs {
					c.handle(cluster.Pending{Executor: e.ID, Why: why})
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

// allocationFailed reports the error to clients before the cluster ends.
func (c *Coordinator) allocationFailed(ctx context.Context, err error) error {
	f := c.allocationFailure(err)
	c.reserved.releaseReason = "not reserved: " + f.GetSummary()
	c.writeHistory(true)
	c.handle(lifecycle.Refused{Failure: f})
	c.serveFor(ctx, 2*time.Second, nil) // gives clients time to ask
	return fmt.Errorf("reserve the executors: %w", err)
}

// ReserveFailure returns the failure of a reservation that err of the engine has ended.
func ReserveFailure(err error) *clusterpb.Failure {
	return &clusterpb.Failure{
		Kind: "engine", Summary: err.Error(), Remedy: lifecycle.ReserveRemedy(err.Error()), ExitCode: 69,
	}
}

// allocationFailure returns the failure of an allocation. A driver that cannot take over the executors of an earlier
// one gives the cluster up, unless the engine does not answer.
func (c *Coordinator) allocationFailure(err error) *clusterpb.Failure {
	f := ReserveFailure(err)
	switch {
	case c.cfg.Recovered.Saved == nil:
	case errors.Is(err, cluster.ErrEngineAway):
		f.Summary, f.Remedy = fmt.Sprintf("cluster %s is not taken over yet: %v", c.cfg.Name, err), ""
	default:
		f.Summary = fmt.Sprintf("cluster %s cannot be taken over and is given up: %v", c.cfg.Name, err)
		f.Remedy = "%tfcluster reserve makes another; the executors of this one end when no driver has come for the " +
			"time of --idle"
		if c.cfg.Request.GetIdleMillis() == 0 {
			f.Remedy = fmt.Sprintf("%%tfcluster reserve makes another; --idle never keeps the executors of this one: "+
				"end their processes \"tfcluster agent\", or %s, in which they run", c.cfg.Recovered.Allocation)
		}
	}
	return f
}

// engineEvent applies an event of the engine.
func (c *Coordinator) engineEvent(e cluster.Event) {
	switch e := e.(type) {
	case cluster.Warning:
		c.saveSoon() // such as excluded nodes
		c.note(e.Text, true)
		c.subs.wake()
		return
	case cluster.StateChanged:
		c.saveSoon()
		return
	case cluster.Granted:
		c.execs.granted[e.Executor] = e
		c.saveSoon() // a later driver must find the granted executor
	case cluster.BackedOff:
		c.saveSoon()
	}
	c.handle(e)
}

// replace asks the engine for another executor; an error is handled as a loss. elsewhere asks for another host.
func (c *Coordinator) replace(id cluster.ExecutorID, elsewhere bool) {
	attempt, host := c.lc.Executor(id).Attempt, c.lc.Executor(id).Host
	if conn := c.execs.agents[id]; conn != nil {
		conn.close("its executor is replaced")
		delete(c.execs.agents, id)
		delete(c.execs.gpus, id)
		c.snapshotMissing(id)
	}
	c.work.Go(func() {
		ctx, cancel := context.WithTimeout(c.working, time.Minute)
		defer cancel()
		select {
		case <-c.reserved.allocated:
		case <-ctx.Done():
			return // nothing was granted
		}
		if chooser, ok := c.reserved.alloc.(cluster.HostAvoider); ok && elsewhere {
			chooser.AvoidHost(ctx, id, host)
		}
		if err := c.reserved.alloc.Replace(ctx, id); err != nil {
			c.post(func() {
				c.handle(lifecycle.AgentLost{Exec: id, Attempt: attempt, By: cluster.LostByError, Cause: err.Error()})
			})
			return
		}
		c.post(c.saveState) // a later driver must find this executor instead of the old one
	})
}

// reasonWait is how long clients may take to read why a reservation failed.
const reasonWait = 200 * time.Millisecond

func (c *Coordinator) release(reason string) {
	if c.reserved.releasing {
		return
	}
	c.reserved.releasing, c.reserved.releaseReason = true, cmp.Or(c.reserved.releaseReason, reason)
	c.log.Info("release", "reason", reason)
	if c.reserved.alloc == nil { // nothing was granted
		c.writeHistory(true)
		c.reserved.released <- nil
		return
	}
	how, why := c.finalStatus(reason)
	go func() { // ends with a message to the loop
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		var err error
		if c.cfg.TensorBoard != nil {
			err = c.cfg.TensorBoard.Close(ctx)
		}
		undone := c.reserved.alloc.Release(ctx, how, why)
		err = errors.Join(err, undone)
		lastNote := c.files.flushRemote()
		if undone != nil { // nobody will know of it when this driver is gone
			lastNote = strings.TrimSpace(fmt.Sprintf("warning: not everything was released: %v\n%s", undone, lastNote))
		}
		c.post(func() {
			if c.reserved.lastNote = lastNote; lastNote != "" {
				c.note(lastNote, true)
				c.reserved.releaseReason += "; " + strings.TrimPrefix(lastNote, "warning: ") // nobody may read the note
			}
			c.writeHistory(true)
			c.reserved.released <- err
		})
	}()
}

// saveShare limits saving to 1/saveShare of the loop's time: each executor of a large
// reservation is granted by an event of its own, and the home's disk may be slow.
const saveShare = 5

// saveSoon saves the state after the current event, or later if it was saved a moment ago.
// Executors granted since the last save are lost if the driver is killed. Loop only.
func (c *Coordinator) saveSoon() {
	if c.timers["save"] == nil {
		c.after("save", max(time.Nanosecond, time.Until(c.reserved.saveNext)), c.saveState)
	}
}

// withLimit returns the text of an error of this process with what to do if it names a limit of this host.
func withLimit(text string) string {
	step := errtext.RemedyForLimit(text, " on the driver's host")
	if errtext.KeptFromStart(step) {
		step += ", and reserve again: the driver keeps the limit that it began with"
	}
	if step != "" {
		text += "; " + step
	}
	return text
}

// saveState saves the state for a later driver. Loop only.
func (c *Coordinator) saveState() {
	if c.reserved.alloc == nil {
		return // there is nothing to recover yet
	}
	began := time.Now()
	defer func() {
		c.reserved.saveNext = time.Now().Add(max((saveShare-1)*time.Since(began), c.cfg.Timing.SaveEvery))
	}()
	if err := c.cfg.Hooks.SaveState(c.reserved.alloc.ID(), c.reserved.alloc.Saved(), c.runs.lastRun,
		c.clients.detached); err != nil {
		text := "the cluster's state could not be saved, so a driver that dies now cannot be replaced: " +
			withLimit(err.Error())
		c.noteOnce(text)
	}
	c.writeHistory(false)
}

// writeHistory writes the cluster's ClusterRecord. Loop only.
func (c *Coordinator) writeHistory(over bool) {
	if c.cfg.Hooks.Record == nil {
		return
	}
	var places []byte
	if k, ok := c.reserved.alloc.(cluster.ApplicationHistory); ok {
		places = k.LogLocations()
	}
	if err := c.cfg.Hooks.Record(applications(c.reserved.alloc), places, c.runs.lastRun, over,
		c.reserved.releaseReason); err != nil {
		c.log.Warn("history and logs may lack this cluster after its end, because a file could not be written; "+
			"the cluster goes on", "err", err)
	}
}

// applications returns an allocation's applications; nil if its engine has none.
func applications(a cluster.Allocation) []cluster.Application {
	if h, ok := a.(cluster.ApplicationHistory); ok {
		return h.Applications()
	}
	return nil
}

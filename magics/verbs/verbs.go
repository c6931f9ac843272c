package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/feeding"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// row is a verb: what it is called and takes, and what does it.
type row struct {
	command.Verb
	run func(*invocation, context.Context) (result.Value, error) // nil where the row says "not yet"
	// ownInterrupts: the verb says itself what an interrupt does. Any other is ended by one.
	ownInterrupts bool
	// configured: configuration gives what the line leaves out.
	configured bool
	// announces: the verb itself says what the session took up, since it may be about to say the same.
	announces bool
}

// all are the verbs in the order in which help lists them.
func all(engines cluster.Engines) []row {
	return []row{
		reserveVerb(engines),
		startVerb(),
		waitVerb(),
		runVerb(engines),
		trainVerb(),
		evaluateVerb(),
		inferenceVerb(),
		statusVerb(),
		logsVerb(),
		tensorboardVerb(),
		gpusVerb(),
		stopVerb(),
		resetVerb(),
		detachVerb(),
		attachVerb(),
		historyVerb(),
		shutdownVerb(),
		doctorVerb(),
		versionVerb(),
		helpVerb(),
	}
}

// Set is every verb there is.
type Set struct {
	Table *command.Table
	rows  map[string]*row
}

// NewSet makes the set; engines add their options to reserve and run.
func NewSet(engines cluster.Engines) *Set {
	s := &Set{Table: &command.Table{}, rows: map[string]*row{}}
	for _, v := range all(engines) {
		s.Table.Verbs = append(s.Table.Verbs, v.Verb)
		s.rows[v.Name] = &v
	}
	return s
}

// Do does a command: what it is given by configuration first, then its verb.
func (s *Set) Do(ctx context.Context, of *session.State, c *command.Command, out render.Output, py bridge.Python) (result.Value, error) {
	inv := &invocation{Command: c, session: of, table: s.Table, out: out, py: py}
	v := s.rows[c.Verb.Name]
	if !v.announces {
		of.Greet(ctx, out)
	}
	if help := s.Table.Help(); c.Help && c.Verb != help {
		inv.Command = &command.Command{Verb: help, Words: []string{c.Verb.Name}}
		return inv.help(ctx)
	}
	if v.configured {
		if err := inv.configure(ctx); err != nil {
			return nil, err
		}
	}
	for _, w := range c.Warnings {
		out.Stderr("warning: " + w + "\n")
	}
	if v.ownInterrupts {
		return v.run(inv, ctx)
	}
	ctx, cancel := interruptible(ctx, out)
	defer cancel()
	return v.run(inv, ctx)
}

// invocation is one command at work.
type invocation struct {
	*command.Command
	session *session.State
	table   *command.Table
	out     render.Output
	py      bridge.Python
	dir     string        // where relative paths start; "" before workingDir
	oneRun  bool          // the executors are for one run, and given back with it
	feed    *feeding.Feed // what the run is fed; nil: nothing
	fed     bool          // feed has ended
}

// interruptible returns a context that an interrupt of the cell cancels. cancel waits until no interrupt
// is consumed any more.
func interruptible(ctx context.Context, out render.Output) (_ context.Context, cancel func()) {
	ctx, end := context.WithCancel(ctx)
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		select {
		case <-out.Interrupts():
			end()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { end(); <-gone }
}

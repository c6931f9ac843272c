// Package verbs implements %tfcluster: one verb per file, using the Control service of a
// cluster's driver, and their common parts (the request of a reservation, the program of a
// start, configuration).
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

// row is a verb: its syntax and its implementation.
type row struct {
	command.Verb
	run func(*invocation, context.Context) (result.Value, error)
	// ownInterrupts: the verb handles interrupts itself. Others are cancelled.
	ownInterrupts bool
	// configured: settings of configuration files apply.
	configured bool
	// announces: the verb itself prints what the session attached to.
	announces bool
}

// all returns the verbs in the order of help.
func all(engines cluster.Engines) []row {
	return []row{
		reserveVerb(engines),
		startVerb,
		waitVerb,
		runVerb(engines),
		trainVerb,
		evaluateVerb,
		inferenceVerb,
		statusVerb,
		logsVerb,
		stacksVerb,
		whyVerb,
		tensorboardVerb,
		gpusVerb,
		stopVerb,
		resetVerb,
		detachVerb,
		attachVerb,
		historyVerb,
		shutdownVerb,
		doctorVerb,
		trustVerb,
		versionVerb,
		helpVerb,
	}
}

// Set is the set of all verbs.
type Set struct {
	Table    *command.Table
	rows     map[string]*row
	detached feeding.Detached
}

// NewSet returns all verbs; engines add their options to reserve and run.
func NewSet(engines cluster.Engines) *Set {
	s := &Set{Table: &command.Table{}, rows: map[string]*row{}}
	for _, v := range all(engines) {
		s.Table.Verbs = append(s.Table.Verbs, v.Verb)
		s.rows[v.Name] = &v
	}
	return s
}

// Command returns the command of a line. An interrupt ends the wait for the values of its names.
func (s *Set) Command(ctx context.Context, l *command.Line, names command.Expander, shell bool,
	out render.Output,
) (*command.Command, error) {
	expanding, cancel := interruptible(ctx, out)
	defer cancel()
	c, err := s.Table.Command(expanding, l, names, shell)
	if expanding.Err() != nil && ctx.Err() == nil {
		return nil, &result.Interrupted{Text: "nothing was done: the line was still being read"}
	}
	return c, err
}

// Do runs a command, after adding settings of configuration files.
func (s *Set) Do(ctx context.Context, of *session.State, c *command.Command, out render.Output,
	py bridge.Python,
) (result.Value, error) {
	inv := &invocation{Command: c, session: of, table: s.Table, out: out, py: py, detached: &s.detached}
	v := s.rows[c.Verb.Name]
	if !v.announces {
		if text := of.Announcement(ctx); text != "" {
			out.Stdout(text)
		}
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
	inv.meansApplication()
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

// meansApplication puts the name of a live cluster in the place of an application's ID behind -c.
func (inv *invocation) meansApplication() {
	name := inv.Text("cluster")
	if !inv.isApplication(name) || inv.session.Options.History == nil || inv.Verb.Name == "logs" ||
		inv.Verb.Name == "history" {
		return // which also show the application itself
	}
	if live := inv.session.Options.History.FindByApplication(name); live != "" {
		inv.Means(live)
	}
}

// invocation is one command that runs.
type invocation struct {
	*command.Command
	session *session.State
	table   *command.Table
	out     render.Output
	py      bridge.Python
	dir     string          // base of relative paths; "" before workingDir
	oneRun  bool            // the executors are for one run, and released with it
	feed    *feeding.Client // what the run is fed; nil: nothing
	fed     bool            // feed has ended
	view    *render.View    // of the run; nil before it shows anything

	detached *feeding.Detached // feeds of commands that have ended
}

// shown returns the cell's view of the run.
func (inv *invocation) shown() *render.View {
	if inv.view == nil {
		inv.view = render.NewView(inv.out)
	}
	return inv.view
}

// interruptible returns a context that an interrupt of the cell cancels. cancel waits until no
// more interrupts are consumed.
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

// Options that several verbs have. pastClusterOption is -c of verbs that also support ended clusters.
var (
	clusterOption     = command.Option{Name: "cluster", Short: "c", Kind: command.KindCluster, Help: whichCluster}
	pastClusterOption = command.Option{Name: "cluster", Short: "c", Kind: command.KindPastCluster, Help: whichCluster}
	nowOption         = command.Option{
		Name: "now", Kind: command.KindFlag,
		Help: "run at once, beside a cell that is busy or hangs; the line is not expanded",
	}
	jsonOption = command.Option{Name: "json", Kind: command.KindFlag, Help: "print JSON"}
	runOption  = command.Option{Name: "run", Kind: command.KindRun, Help: "which run; default: the active or last one"}
)

const whichCluster = "which cluster; default: this notebook's last, elsewhere the only live one"

func followOptions() []command.Option {
	return []command.Option{
		{Name: "show", Kind: command.KindShow, Meta: "all|chief|TASK", Help: "whose lines the cell shows"},
		clusterOption,
	}
}

// optionKinds maps kinds of engines' options to those of the table of verbs.
var optionKinds = map[cluster.OptionKind]command.Kind{
	cluster.TextOption:     command.KindText,
	cluster.FlagOption:     command.KindFlag,
	cluster.CountOption:    command.KindCount,
	cluster.KeyValueOption: command.KindKeyValue,
	cluster.ObjectOption:   command.KindObject,
	cluster.SizeOption:     command.KindSize,
}

// engineOptions returns the engines' options of reserve, in their order, each listed once.
func engineOptions(engines cluster.Engines, group string) []command.Option {
	var options []command.Option
	listed := map[string]int{} // index in options, by name
	for _, e := range engines {
		for _, o := range e.Options {
			if i, ok := listed[o.Name]; ok {
				options[i].Only += " " + e.Name
				continue
			}
			listed[o.Name] = len(options)
			options = append(options, command.Option{
				Name: o.Name, Kind: optionKinds[o.Kind], Meta: o.Meta, Max: o.Max, Repeat: o.Repeat, Help: o.Help,
				Only: e.Name, Engine: o.Name, Group: group,
			})
		}
	}
	return options
}

// defaultEngine is the engine of a request without --backend.
func defaultEngine(engines cluster.Engines) string {
	e, _ := engines.Find("")
	return e.Name
}

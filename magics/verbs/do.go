package verbs

import (
	"context"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

// verbFunc finds what does a verb.
func verbOf(name string) verbFunc {
	switch name {
	case "reserve":
		return (*invocation).reserve
	case "start":
		return (*invocation).start
	case "wait", "train":
		return (*invocation).wait
	case "status":
		return (*invocation).status
	case "logs":
		return (*invocation).logs
	case "tensorboard":
		return (*invocation).tensorboard
	case "gpus":
		return (*invocation).gpus
	case "stop":
		return (*invocation).stop
	case "reset":
		return (*invocation).reset
	case "detach":
		return (*invocation).detach
	case "attach":
		return (*invocation).attach
	case "history":
		return (*invocation).history
	case "shutdown":
		return (*invocation).shutdown
	case "doctor":
		return (*invocation).doctor
	case "run":
		return (*invocation).batch
	default:
		return (*invocation).help
	}
}

// Do does a command: what it is given by configuration first, then its verb.
func Do(ctx context.Context, s *session.State, t *command.Table, c *command.Command, out render.Output, py bridge.Python) (result.Value, error) {
	inv := &invocation{Command: c, session: s, table: t, out: out, py: py}
	if c.Verb.Name != "attach" {
		s.Greet(ctx, out)
	}
	if c.Help && c.Verb.Name != "help" {
		about := &invocation{Command: &command.Command{Verb: t.Verb("help"), Words: []string{c.Verb.Name}}, session: s, table: t, out: out}
		return about.help(ctx)
	}
	if err := inv.configure(ctx); err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		out.Stderr("warning: " + w + "\n")
	}
	run := verbOf(c.Verb.Name)
	if !interruptible(c.Verb.Name) {
		return run(inv, ctx)
	}
	ctx, cancel := breakable(ctx, out)
	defer cancel()
	return run(inv, ctx)
}

// interruptible is whether an interrupt simply ends the verb; the others say
// themselves what it does.
func interruptible(verb string) bool {
	switch verb {
	case "reserve", "start", "wait", "train", "logs", "run":
		return false
	}
	return true
}

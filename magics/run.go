package magics

import (
	"context"
	"strings"
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

// Run does a cell made of magics alone, line by line; the first error ends it. The
// value is the last line's. Call it for cells that Match does not pass.
func (s *Session) Run(ctx context.Context, code string, out Output, py Python) (Value, error) {
	cell, ok := readCell(code)
	if !ok {
		return nil, &UsageError{Text: "not a cell of %tfcluster lines"}
	}
	var body *string
	if cell.hasBody {
		body = &cell.body
	}
	var value Value
	for _, line := range cell.lines {
		v, err := s.RunLine(ctx, line, body, out, py)
		if err != nil {
			return nil, err
		}
		value = v
	}
	return value, nil
}

// RunLine does one magic from inside Python code: line is what follows
// %tfcluster, body a cell magic's.
func (s *Session) RunLine(ctx context.Context, line string, body *string, out Output, py Python) (Value, error) {
	if asked, ok := helpAsked(line); ok {
		return s.do(ctx, &Command{Verb: s.table.Verb("help"), Words: asked}, out, py)
	}
	tokens, err := s.table.tokens(ctx, line, py)
	if err != nil {
		return nil, err
	}
	c, err := s.table.parse(tokens, body, s.opt.Shell)
	if err != nil {
		return nil, err
	}
	c.typed = true
	return s.do(ctx, c, out, py)
}

// helpAsked recognises "VERB ?" and "VERB?" before anything is expanded.
func helpAsked(line string) ([]string, bool) {
	words := strings.Fields(line)
	switch {
	case len(words) == 0 || strings.Trim(words[0], "?") == "":
		return nil, true
	case len(words) == 1 && strings.HasSuffix(words[0], "?"):
		return []string{strings.TrimRight(words[0], "?")}, true
	case len(words) == 2 && strings.Trim(words[1], "?") == "":
		return words[:1], true
	}
	return nil, false
}

// RunArgv does one command given as words, which are taken as they are: for the
// Python API and the command line.
func (s *Session) RunArgv(ctx context.Context, argv []string, out Output, py Python) (Value, error) {
	c, err := s.table.parse(plainTokens(argv), nil, s.opt.Shell)
	if err != nil {
		return nil, err
	}
	return s.do(ctx, c, out, py)
}

func (s *Session) do(ctx context.Context, c *Command, out Output, py Python) (Value, error) {
	inv := &invocation{Command: c, session: s, out: out, py: py}
	if c.Verb.Name != "attach" {
		s.greet(ctx, out)
	}
	if c.Help && c.Verb.Name != "help" {
		about := &invocation{Command: &Command{Verb: s.table.Verb("help"), Words: []string{c.Verb.Name}}, session: s, out: out}
		return about.help(ctx)
	}
	if err := inv.configure(ctx); err != nil {
		return nil, err
	}
	for _, w := range c.Warnings {
		out.Stderr("warning: " + w + "\n")
	}
	run := verbOf(c.Verb.Name)
	if !c.Verb.interruptible() {
		return run(inv, ctx)
	}
	ctx, cancel := breakable(ctx, out)
	defer cancel()
	return run(inv, ctx)
}

// interruptible is whether an interrupt simply ends the verb; the others say
// themselves what it does.
func (v *Verb) interruptible() bool {
	switch v.Name {
	case "reserve", "start", "wait", "train", "logs", "run":
		return false
	}
	return true
}

package magics

import (
	"cmp"
	"context"
	"os"
	"strings"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
	"github.com/tfcluster/tfcluster/magics/verbs"
)

// Session is what one kernel, gate or command runs its lines with. Its methods may be called
// from any goroutine.
type Session struct {
	*session.State
	verbs *verbs.Set
}

// NewSession makes a session. With an owner it takes up, in the background, the
// clusters that the last kernel of that name left; Close ends it.
func NewSession(ctx context.Context, opt session.Options) *Session {
	return &Session{State: session.NewState(ctx, opt), verbs: verbs.NewSet()}
}

// Table is the session's table, for help and the reference in the documentation.
func (s *Session) Table() *command.Table { return s.verbs.Table }

// GateMain is `tfcluster gate`: a session, and a gate to it for as long as the kernel lives that
// holds the other end of lifeline.
func GateMain(ctx context.Context, argv []string, opt session.Options, lifeline *os.File) error {
	return bridge.Main(ctx, argv, lifeline, func(owner, python string) (bridge.Runner, func()) {
		opt := opt
		opt.Owner, opt.Python = cmp.Or(owner, opt.Owner), cmp.Or(python, opt.Python)
		s := NewSession(ctx, opt)
		return s, s.Close
	})
}

// Run does a cell made of magics alone, line by line; the first error ends it. The
// value is the last line's. Call it for cells that Match does not pass.
func (s *Session) Run(ctx context.Context, code string, out render.Output, py bridge.Python) (result.Value, error) {
	cell, ok := command.ReadCell(code)
	if !ok {
		return nil, &command.UsageError{Text: "not a cell of %tfcluster lines"}
	}
	var body *string
	if cell.HasBody {
		body = &cell.Body
	}
	var value result.Value
	for _, line := range cell.Lines {
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
func (s *Session) RunLine(ctx context.Context, line string, body *string, out render.Output, py bridge.Python) (result.Value, error) {
	if asked, ok := helpAsked(line); ok {
		return s.verbs.Do(ctx, s.State, &command.Command{Verb: s.verbs.Table.Help(), Words: asked}, out, py)
	}
	tokens, err := s.verbs.Table.Tokens(ctx, line, values{py})
	if err != nil {
		return nil, err
	}
	c, err := s.verbs.Table.Parse(tokens, body, s.Options.Shell)
	if err != nil {
		return nil, err
	}
	c.Typed = true
	return s.verbs.Do(ctx, s.State, c, out, py)
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
func (s *Session) RunArgv(ctx context.Context, argv []string, out render.Output, py bridge.Python) (result.Value, error) {
	c, err := s.verbs.Table.Parse(command.PlainTokens(argv), nil, s.Options.Shell)
	if err != nil {
		return nil, err
	}
	return s.verbs.Do(ctx, s.State, c, out, py)
}

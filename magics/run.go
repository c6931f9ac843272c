package magics

import (
	"cmp"
	"context"
	"os"
	"strings"
)

// Session is what one kernel, gate or command runs its lines with. Its methods may be called
// from any goroutine.
type Session struct {
	*State
	table *Table
}

// NewSession makes a session. With an owner it takes up, in the background, the
// clusters that the last kernel of that name left; Close ends it.
func NewSession(ctx context.Context, opt Options) *Session {
	return &Session{State: newState(ctx, opt), table: NewTable()}
}

// Table is the session's table, for help and the reference in the documentation.
func (s *Session) Table() *Table { return s.table }

// GateMain is `tfcluster gate`: a session, and a gate to it for as long as the kernel lives that
// holds the other end of lifeline.
func GateMain(ctx context.Context, argv []string, opt Options, lifeline *os.File) error {
	return serveGate(ctx, argv, lifeline, func(owner, python string) (Runner, func()) {
		opt := opt
		opt.Owner, opt.Python = cmp.Or(owner, opt.Owner), cmp.Or(python, opt.Python)
		s := NewSession(ctx, opt)
		return s, s.Close
	})
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
		return do(ctx, s.State, s.table, &Command{Verb: s.table.Verb("help"), Words: asked}, out, py)
	}
	tokens, err := s.table.tokens(ctx, line, values{py})
	if err != nil {
		return nil, err
	}
	c, err := s.table.parse(tokens, body, s.opt.Shell)
	if err != nil {
		return nil, err
	}
	c.typed = true
	return do(ctx, s.State, s.table, c, out, py)
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
	return do(ctx, s.State, s.table, c, out, py)
}

package magics

import (
	"cmp"
	"context"
	"encoding/json"
	"os"

	"github.com/tfcluster/tfcluster/magics/bridge"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/panel"
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
	return &Session{State: session.NewState(ctx, opt), verbs: verbs.NewSet(opt.Engines)}
}

// Table is the session's table, for help and the reference in the documentation.
func (s *Session) Table() *command.Table { return s.verbs.Table }

// GateMain is `tfcluster gate`: a session, and a gate to it for as long as the kernel lives that
// holds the other end of lifeline.
func GateMain(ctx context.Context, argv []string, opt session.Options, lifeline *os.File) error {
	return bridge.Main(ctx, argv, lifeline, func(owner, python string) (bridge.Runner, bridge.PanelServer, func()) {
		opt := opt
		opt.Owner, opt.Python = cmp.Or(owner, opt.Owner), cmp.Or(python, opt.Python)
		s := NewSession(ctx, opt)
		return s, s, s.Close
	})
}

// Read reads a cell that is made of magics alone, for Run; nil is a cell of Python's. It asks
// nobody and is quick: the kernel calls it for every cell.
func (s *Session) Read(code string) *command.Plan { return s.verbs.Table.Read(code) }

// Run does a cell line by line; the first error ends it. The value is the last line's.
func (s *Session) Run(ctx context.Context, p *command.Plan, out render.Output, py bridge.Python) (result.Value, error) {
	var value result.Value
	for _, line := range p.Lines {
		v, err := s.runLine(ctx, line, out, py)
		if err != nil {
			return nil, err
		}
		value = v
	}
	return value, nil
}

// RunLine does one magic from inside Python code: line is what follows
// %tfcluster, body a cell magic's.
func (s *Session) RunLine(ctx context.Context, line string, body *string, out render.Output,
	py bridge.Python,
) (result.Value, error) {
	return s.runLine(ctx, s.verbs.Table.Line(line, body), out, py)
}

func (s *Session) runLine(ctx context.Context, l *command.Line, out render.Output,
	py bridge.Python,
) (result.Value, error) {
	c, err := s.verbs.Command(ctx, l, values{py}, s.Options.Shell, out)
	if err != nil {
		return nil, err
	}
	return s.verbs.Do(ctx, s.State, c, out, py)
}

// ServePanel serves one comm of the JupyterLab extension; see panel.Server.Serve.
func (s *Session) ServePanel(ctx context.Context, py bridge.Python, messages <-chan json.RawMessage, send func(any)) {
	act := func(ctx context.Context, on *session.State, words []string, out render.Output,
		py bridge.Python,
	) (result.Value, error) {
		c, err := s.verbs.Table.Argv(words, false)
		if err != nil {
			return nil, err
		}
		return s.verbs.Do(ctx, on, c, out, py)
	}
	(&panel.Server{Session: s.State, Act: act, Python: py}).Serve(ctx, messages, send)
}

// RunArgv does one command given as words, which are taken as they are: for the
// Python API and the command line.
func (s *Session) RunArgv(ctx context.Context, argv []string, out render.Output,
	py bridge.Python,
) (result.Value, error) {
	c, err := s.verbs.Table.Argv(argv, s.Options.Shell)
	if err != nil {
		return nil, err
	}
	return s.verbs.Do(ctx, s.State, c, out, py)
}

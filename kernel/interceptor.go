package kernel

import "context"

// Mode is how the kernel handles a cell.
type Mode int

// Pass forwards a cell to the child, Queue runs it in its turn, Now runs it at once.
const (
	Pass Mode = iota
	Queue
	Now
)

// Match is the Interceptor's decision about a cell.
type Match struct {
	Mode Mode
	// NowHint makes a waiting cell show that it could run at once with --now.
	NowHint bool
	// Plan runs the cell, unless Mode is Pass.
	Plan Plan
}

// Plan is a cell that the Interceptor has parsed. The kernel calls Run once, or never if the
// cell is aborted.
type Plan interface {
	// Run runs the cell. ctx ends when the kernel ends; interrupts arrive through
	// Cell.Interrupts.
	Run(ctx context.Context, cell *Cell) Result
}

// Interceptor runs cells that are not Python. Its methods must be safe for concurrent use.
type Interceptor interface {
	// Match decides about a cell by its code only; it must not block.
	Match(code string) Match
	// Complete answers a completion request; the cursor counts code points. false forwards the
	// request to the child.
	Complete(ctx context.Context, code string, cursor int) (Completion, bool)
	// Inspect answers Shift-Tab with a MIME bundle; false forwards the request to the child.
	Inspect(ctx context.Context, code string, cursor int) (map[string]any, bool)
	// OpenComm handles a comm that a client opens; false leaves it to the child.
	OpenComm(c *Comm) bool
	// Shutdown is called when the kernel ends, permanently or for a restart.
	Shutdown(ctx context.Context, restart bool)
}

// Result is the result of a cell.
type Result struct {
	// Err makes the cell fail; nil is success.
	Err *CellError
	// Data is a MIME bundle shown as Out[n]; nil for none.
	Data map[string]any
	// After is Python code that the child runs silently afterwards, within the same count: it
	// may store Out[n] and _. The name __count__ holds n.
	After string
}

// CellError is an error that clients show.
type CellError struct {
	Name, Value string
	Traceback   []string
}

// Completion is the answer to a completion request; positions count code points.
type Completion struct {
	Matches    []string
	Start, End int
}

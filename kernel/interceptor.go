package kernel

import "context"

// Mode is what becomes of a cell.
type Mode int

// A cell passes to the child, waits its turn in the kernel's queue, or runs at once.
const (
	Pass Mode = iota
	Queue
	Now
)

// Match is the Interceptor's word on a cell.
type Match struct {
	Mode Mode
	// NowHint: while it waits behind a busy cell, say that it could run at once with --now.
	NowHint bool
	// Plan runs the cell, unless it passes.
	Plan Plan
}

// Plan is a cell as the Interceptor has read it. The kernel calls Run once, or, where the cell is
// aborted, never.
type Plan interface {
	// Run runs the cell. ctx ends when the kernel does; an interrupt comes through the cell.
	Run(ctx context.Context, cell *Cell) Result
}

// Interceptor runs the cells that are not Python's. Its methods may be called from any
// goroutine.
type Interceptor interface {
	// Match decides from a cell's code alone; it must not wait.
	Match(code string) Match
	// Complete answers a completion at a cursor in code points; false asks the child.
	Complete(ctx context.Context, code string, cursor int) (Completion, bool)
	// Inspect answers Shift-Tab with a MIME bundle; false asks the child.
	Inspect(ctx context.Context, code string, cursor int) (map[string]any, bool)
	// OpenComm takes a comm that a client opens; false leaves it to the child.
	OpenComm(c *Comm) bool
	// Shutdown tells that the kernel ends: for good, or to be started again.
	Shutdown(ctx context.Context, restart bool)
}

// Result is a cell's end.
type Result struct {
	// Err makes the cell fail; nil is success.
	Err *CellError
	// Data is a MIME bundle shown as Out[n]; nil for none.
	Data map[string]any
	// After is Python that the child runs silently afterwards, within the same count: it
	// may store Out[n] and _. The name __count__ holds n.
	After string
}

// CellError is an error as a client shows it.
type CellError struct {
	Name, Value string
	Traceback   []string
}

// Completion is the answer to a completion request; the positions count code points.
type Completion struct {
	Matches    []string
	Start, End int
}

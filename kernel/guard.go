package kernel

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime/debug"
)

// guarded calls an Interceptor and recovers panics: a panic is logged and the answer of the
// method is lost. The kernel holds no lock during a call, so its state stays consistent. Plans
// are guarded separately; a panic there fails the cell.
type guarded struct {
	Interceptor
	log *slog.Logger
}

// recovered logs a panic; it must be deferred.
func (g guarded) recovered(method string) {
	if p := recover(); p != nil {
		logPanic(g.log, method, p)
	}
}

func logPanic(log *slog.Logger, where string, p any) {
	log.Error("panic: a fault of tfcluster, report it", "where", where, "panic", p, "stack", string(debug.Stack()))
}

// Match leaves the cell to Python after a panic.
func (g guarded) Match(code string) (m Match) {
	defer g.recovered("Match")
	return g.Interceptor.Match(code)
}

// Complete leaves the request to Python after a panic.
func (g guarded) Complete(ctx context.Context, code string, cursor int) (c Completion, ok bool) {
	defer g.recovered("Complete")
	return g.Interceptor.Complete(ctx, code, cursor)
}

// Inspect leaves the request to Python after a panic.
func (g guarded) Inspect(ctx context.Context, code string, cursor int) (data map[string]any, ok bool) {
	defer g.recovered("Inspect")
	return g.Interceptor.Inspect(ctx, code, cursor)
}

// OpenComm leaves the comm to Python after a panic.
func (g guarded) OpenComm(c *Comm) (taken bool) {
	defer g.recovered("OpenComm")
	return g.Interceptor.OpenComm(c)
}

// Shutdown lets the kernel end after a panic.
func (g guarded) Shutdown(ctx context.Context, restart bool) {
	defer g.recovered("Shutdown")
	g.Interceptor.Shutdown(ctx, restart)
}

// message calls OnMessage, if there is one.
func (c *Comm) message(data json.RawMessage) {
	defer guarded{log: c.k.log}.recovered("OnMessage")
	if c.OnMessage != nil {
		c.OnMessage(data)
	}
}

// closed calls OnClose, if there is one.
func (c *Comm) closed() {
	defer guarded{log: c.k.log}.recovered("OnClose")
	if c.OnClose != nil {
		c.OnClose()
	}
}

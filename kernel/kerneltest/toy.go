// Package kerneltest has a toy Interceptor for trying a kernel without a cluster, and the tests
// that run a whole kernel with a real ipykernel behind it.
package kerneltest

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tfcluster/tfcluster/kernel"
)

// Toy handles cells that begin with %toy:
//
//	%toy lines N MS     N lines, one each MS milliseconds
//	%toy flood N        N lines at once
//	%toy progress       updates a display ten times
//	%toy fail           fails
//	%toy panic          panics
//	%toy value X        returns X: Out[n] and _ hold it
//	… --now             runs concurrently with other cells
type Toy struct {
	mu    sync.Mutex
	ended []bool // guarded by mu: restart argument of each Shutdown
}

var (
	_ kernel.Interceptor = (*Toy)(nil)
	_ kernel.Plan        = (*Toy)(nil)
)

// Match matches %toy.
func (t *Toy) Match(code string) kernel.Match {
	code = strings.TrimSpace(code)
	switch {
	case !strings.HasPrefix(code, "%toy"):
		return kernel.Match{}
	case strings.HasSuffix(code, "--now"):
		return kernel.Match{Mode: kernel.Now, Plan: t}
	}
	return kernel.Match{Mode: kernel.Queue, NowHint: true, Plan: t}
}

// Run implements kernel.Plan: it runs one line.
func (t *Toy) Run(ctx context.Context, c *kernel.Cell) kernel.Result {
	words := append(strings.Fields(c.Code), "", "", "")
	num := func(i int) int { n, _ := strconv.Atoi(words[i]); return n } // 0 if it is not a number
	switch words[1] {
	case "lines":
		for i := range num(2) {
			c.Stdout(fmt.Sprintf("toy %d\n", i))
			select {
			case <-c.Interrupts():
				return kernel.Result{Err: &kernel.CellError{Name: "KeyboardInterrupt", Value: "interrupted"}}
			case <-ctx.Done():
				return kernel.Result{Err: &kernel.CellError{Name: "Ended", Value: "the kernel ends"}}
			case <-time.After(time.Duration(num(3)) * time.Millisecond):
			}
		}
	case "flood":
		for i := range num(2) {
			c.Stdout("line " + strconv.Itoa(i) + "\n")
		}
	case "progress":
		c.Display("p", map[string]any{"text/plain": "0 %"}, nil)
		for i := 1; i <= 10; i++ {
			c.Update("p", map[string]any{"text/plain": strconv.Itoa(10*i) + " %"}, nil)
		}
	case "fail":
		return kernel.Result{
			Err: &kernel.CellError{Name: "ToyError", Value: "it failed", Traceback: []string{"ToyError: it failed"}},
		}
	case "panic":
		panic("toy")
	case "value":
		return kernel.Result{
			Data:  map[string]any{"text/plain": words[2]},
			After: "ip.user_ns['Out'][__count__] = ip.user_ns['_'] = " + strconv.Quote(words[2]),
		}
	}
	return kernel.Result{}
}

// Complete completes the commands.
func (*Toy) Complete(_ context.Context, code string, cursor int) (kernel.Completion, bool) {
	if !strings.HasPrefix(code, "%toy ") {
		return kernel.Completion{}, false
	}
	c := kernel.Completion{Start: 5, End: cursor}
	for _, v := range []string{"lines", "flood", "fail"} {
		if strings.HasPrefix(v, code[5:min(cursor, len(code))]) {
			c.Matches = append(c.Matches, v)
		}
	}
	return c, true
}

// Inspect describes the toy.
func (*Toy) Inspect(_ context.Context, code string, _ int) (map[string]any, bool) {
	if !strings.HasPrefix(code, "%toy") {
		return nil, false
	}
	return map[string]any{"text/plain": "a toy"}, true
}

// OpenComm echoes messages on the target "toy".
func (*Toy) OpenComm(c *kernel.Comm) bool {
	if c.Target != "toy" {
		return false
	}
	c.OnMessage = func(data json.RawMessage) { c.Send(data) }
	return true
}

// Shutdown records the call.
func (t *Toy) Shutdown(_ context.Context, restart bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = append(t.ended, restart)
}

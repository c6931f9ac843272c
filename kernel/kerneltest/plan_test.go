package kerneltest_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tfcluster/tfcluster/kernel"
	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// numbering returns a numbered plan for each cell.
type numbering struct {
	*kerneltest.Toy
	matched atomic.Int32
}

// numbered writes its number.
type numbered int32

func (n *numbering) Match(code string) kernel.Match {
	if !strings.HasPrefix(code, "%toy") {
		return kernel.Match{}
	}
	return kernel.Match{Mode: kernel.Queue, Plan: numbered(n.matched.Add(1))}
}

func (n numbered) Run(_ context.Context, c *kernel.Cell) kernel.Result {
	c.Stdout(fmt.Sprint("plan ", int32(n)))
	return kernel.Result{}
}

// Ensure a cell is matched once, and that the plan of that match is run.
func TestPlan(t *testing.T) {
	t.Parallel()
	n := &numbering{Toy: &kerneltest.Toy{}}
	f := kerneltest.Start(t, n).Ready()
	for _, want := range []string{"plan 1", "plan 2"} {
		if r, text := f.Run("%toy"); r.Status != "ok" || text != want {
			t.Errorf("%+v %q, want %q", r, text, want)
		}
	}
	if got := n.matched.Load(); got != 2 {
		t.Errorf("two cells were matched %d times", got)
	}
}

// planless matches cells and returns no plan.
type planless struct{ *kerneltest.Toy }

func (planless) Match(code string) kernel.Match {
	if strings.HasPrefix(code, "%toy") {
		return kernel.Match{Mode: kernel.Queue}
	}
	return kernel.Match{}
}

// Ensure a match without a plan, a bug of the Interceptor, fails only its cell.
func TestNoPlan(t *testing.T) {
	t.Parallel()
	f := kerneltest.Start(t, planless{&kerneltest.Toy{}}).Ready()
	if r, _ := f.Run("%toy"); r.Status != "error" || r.EName != "InternalError" {
		t.Errorf("%+v", r)
	}
	if r, text := f.Run("print('runs')"); r.Status != "ok" || text != "runs\n" {
		t.Errorf("%+v %q", r, text)
	}
}

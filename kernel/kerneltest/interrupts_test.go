package kerneltest_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/kernel/kerneltest"
)

// Ensure 200 interrupts at random moments in one kernel leave no cell without a reply and an
// idle, and that the kernel works afterwards.
func TestInterruptsAtRandom(t *testing.T) {
	t.Parallel()
	const seed, interrupts = 1, 200
	random := rand.New(rand.NewPCG(seed, 2)) //nolint:gosec // reproducible
	f := kerneltest.Start(t, &kerneltest.Toy{}, "--log-level=50").Ready()
	p := newPlayer(t, "tfcluster", f, "%toy lines 0 0", nil)
	ends := map[string]int{}
	cells := []string{
		"1+1", "x = 1", "print('a')", "import time; time.sleep(0.01)", "1/0", "%toy lines 2 3", "%toy value v",
		"await __import__('asyncio').sleep(0.01)",
	}
	for i := range interrupts {
		code := cells[random.IntN(len(cells))]
		s := sequence{seed: seed, loose: true, steps: []step{
			{act: onShell, msgType: "execute_request", content: fmt.Sprintf(`{"code":%q,"user_expressions":{}}`, code), id: 0},
			{act: pause, wait: time.Duration(random.IntN(20_000)) * time.Microsecond},
			{act: interrupt},
			{act: onShell, msgType: "execute_request", content: `{"code":"'after'","user_expressions":{}}`, id: 1},
		}}
		if err := p.play(s, i); err != nil {
			t.Fatalf("interrupt %d, %s: %v", i, code, err)
		}
		broken := p.broken()
		for end := time.Now().Add(playLimit); broken != "" && time.Now().Before(end); broken = p.broken() {
			p.next(10 * time.Millisecond)
		}
		if broken != "" {
			t.Fatalf("interrupt %d, %s:\n%s", i, code, broken)
		}
		for _, id := range []int{0, 1} {
			a := p.of(fmt.Sprint(p.prefix, id))
			ends[strings.Fields(a.replies[0])[1]]++
			// The error of a lost reply comes after the idle; nothing else may begin a cell a second time.
			if len(slices.Compact(slices.Clone(a.status))) > 2 && !slices.ContainsFunc(a.replies, isLost) {
				t.Errorf("interrupt %d, %s: %s", i, code, a)
			}
		}
	}
	t.Logf("%v", ends)
	f.Drain()
	for _, code := range []string{"print('python')", "%toy lines 1 0", "print('python')"} {
		if r, text := f.Run(code); r.Status != "ok" || text == "" {
			t.Errorf("afterwards %s: %+v %q", code, r, text)
		}
	}
	f.NothingLeft()
}

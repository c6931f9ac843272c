package cluster

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestSaid: what a lost agent wrote last is told with whatever fails because of it, and
// forgotten when another has come.
func TestSaid(t *testing.T) {
	t.Parallel()
	begin := func() *lifecycle {
		p := &player{t: t}
		if err := p.cluster(map[string]string{"worker": "2"}); err != nil {
			t.Fatal(err)
		}
		return p.l
	}
	failure := func(actions []action) *clusterpb.Failure {
		for _, a := range actions {
			if f, ok := a.(actReserveFailed); ok {
				return f.failure
			}
		}
		return nil
	}
	want := []string{"Traceback", "no room"}
	lose := func(l *lifecycle, id ExecutorID) []action {
		x := l.exec(id)
		attempt := x.attempt
		l.step(evGranted{id, attempt, "n1", false})
		l.step(evSaid{id, attempt, want})
		return l.step(evLost{id, attempt, "its agent ended with code 1"})
	}
	l := begin()
	lose(l, "1")
	l.step(evSaid{"1", -1, []string{"of an older one"}})
	if f := failure(l.step(evTimer{"reserve"})); f == nil || !slices.Equal(f.GetLines(), want) {
		t.Errorf("at the timeout: %v", f)
	}
	l = begin()
	var f *clusterpb.Failure
	for range maxReplacements + 1 {
		f = failure(lose(l, "1"))
	}
	if !slices.Equal(f.GetLines(), want) {
		t.Errorf("after the last replacement: %v", f)
	}
	l = begin()
	lose(l, "1")
	l.step(evJoined{exec: "1", attempt: l.exec("1").attempt, incarnation: "i", host: "n2", warm: false})
	if f := failure(l.step(evTimer{"reserve"})); f == nil || len(f.GetLines()) > 0 {
		t.Errorf("after another came: %v", f)
	}
}

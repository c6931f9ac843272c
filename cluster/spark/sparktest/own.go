package sparktest

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// Own has a test of several on one cluster answer for the applications of that name
// (spark.app.name): those that are left at its end, and the executors of those, fail it. It
// is to be called before what ends them is registered as the test's cleanup.
func (c *Cluster) Own(t testing.TB, name string) {
	t.Helper()
	if c.UI == "" {
		return // not one of Start's
	}
	t.Cleanup(func() {
		var s State
		clustertest.WaitFor(t, "the end of the test's own applications", func() bool {
			var err error
			s, err = c.State()
			return err == nil && !slices.ContainsFunc(s.Active, func(a Application) bool { return a.Name == name })
		})
		for _, a := range s.Active {
			if a.Name == name {
				t.Errorf("application %s (%s) is left", a.ID, a.Name)
			}
		}
		var left []process
		clustertest.WaitFor(t, "the end of the executors of the test's own applications", func() bool {
			left = slices.DeleteFunc(c.started(), func(p process) bool {
				return !slices.ContainsFunc(s.Completed, func(a Application) bool { return a.Name == name && a.ID == p.option("--app-id") })
			})
			return len(left) == 0
		})
		for _, p := range left {
			t.Errorf("process %d is left: %.400q", p.PID, p.words)
		}
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
}

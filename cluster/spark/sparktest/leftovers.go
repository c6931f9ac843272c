package sparktest

import (
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// CheckApplications makes a test on a shared cluster fail if applications with that name (spark.app.name)
// or their executors are left at its end. It must be called before the cleanup that stops them is
// registered.
func (c *Cluster) CheckApplications(t testing.TB, name string) {
	t.Helper()
	if c.UI == "" {
		return // not started by Start
	}
	t.Cleanup(func() {
		var s State
		clustertest.WaitFor(t, "the end of the test's applications", func() bool {
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
		clustertest.WaitFor(t, "the end of the executors of the test's applications", func() bool {
			left = slices.DeleteFunc(c.startedProcesses(), func(p process) bool {
				return !slices.ContainsFunc(s.Completed,
					func(a Application) bool { return a.Name == name && a.ID == p.option("--app-id") })
			})
			return len(left) == 0
		})
		for _, p := range left {
			t.Errorf("process %d is left: %.400q", p.PID, p.args)
		}
		if t.Failed() {
			t.Log(c.Logs())
		}
	})
}

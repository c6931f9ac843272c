package groups

import (
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStopped: a member with a stopped process ends its group when another member waits for it in a call. It does not
// end the group before that, nor after its process continues.
func TestStopped(t *testing.T) {
	t.Parallel()
	s, client := serve(t, &fakeRuns{run: Run{ID: 1, Tasks: []Task{{Name: "worker:0"}, {Name: "worker:1"}}}})
	first, second := join(t, client, "worker:0", 0), join(t, client, "worker:1", 0)
	for _, j := range []joining{first, second} {
		j.until(t, func(u *clusterpb.GroupUpdate) bool { return len(u.GetMembers()) == 2 })
	}
	say := func(calling bool) {
		t.Helper()
		for _, task := range []string{"worker:0", "worker:1"} {
			if _, err := client.Progress(t.Context(),
				&clusterpb.GroupProgress{Run: 1, Task: task, Calls: 3, Calling: calling && task == "worker:1"}); err != nil {
				t.Error(err)
			}
		}
	}
	s.SetStopped(1, "worker:0", true, time.Hour)
	s.SetStopped(1, "worker:0", false, time.Hour)
	s.SetStopped(1, "worker:2", true, 0) // no member
	s.SetStopped(2, "worker:0", true, 0) // another run
	s.SetStopped(1, "worker:0", true, time.Millisecond)
	second.until(t, (*clusterpb.GroupUpdate).GetAsks)
	say(false) // no member waits: the members are asked again
	second.until(t, (*clusterpb.GroupUpdate).GetAsks)
	say(true)
	const want = "worker:0 is stopped (a SIGSTOP, or a debugger), and worker:1 waits for it"
	if u := second.until(t, func(u *clusterpb.GroupUpdate) bool { return u.GetOver() != "" }); u.GetOver() != want {
		t.Errorf("the other one hears %q, want %q", u.GetOver(), want)
	}
}

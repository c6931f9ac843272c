package groups

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestFail: the reason of a group's end follows from one member's report, the others' answers and the member that has
// left. All members receive the same reason.
func TestFail(t *testing.T) {
	t.Parallel()
	late := &clusterpb.GroupFailure{
		Call: 5, What: "barrier", Late: true, Reason: "the timeout= of 1s has passed", Waits: []string{"worker:1"},
	}
	for name, c := range map[string]struct {
		failure *clusterpb.GroupFailure
		said    map[string]*clusterpb.GroupProgress // the others' answers
		leaves  string
		want    string
	}{
		"not arrived": {failure: late, said: map[string]*clusterpb.GroupProgress{
			"worker:1": {Calls: 5, Calling: true},
			"worker:2": {Calls: 4},
		}, want: "barrier: worker:2 did not arrive: the timeout= of 1s has passed"},
		"in an earlier call": {
			failure: late, said: map[string]*clusterpb.GroupProgress{"worker:1": {Calls: 4, Calling: true}},
			want: "barrier: the executor of worker:2 does not answer: the timeout= of 1s has passed",
		},
		"two": {
			failure: late, said: map[string]*clusterpb.GroupProgress{"worker:2": {Calls: 4}, "worker:1": {Calls: 1}},
			want: "barrier: worker:1, worker:2 did not arrive: the timeout= of 1s has passed",
		},
		"both kinds": {
			failure: late, said: map[string]*clusterpb.GroupProgress{"worker:2": {Calls: 4}},
			want: "barrier: worker:2 did not arrive, the executor of worker:1 does not answer: the timeout= of 1s has passed",
		},
		"all arrived": {
			failure: late, said: map[string]*clusterpb.GroupProgress{"worker:1": {Calls: 5}, "worker:2": {Calls: 6}},
			want: "barrier: all have arrived, but worker:0 gets nothing from worker:1: the timeout= of 1s has passed",
		},
		"left meanwhile": {failure: late, leaves: "worker:2", want: "worker:2 has left the group"},
		"lost": {
			failure: &clusterpb.GroupFailure{Lost: "worker:1", Reason: "EOF"},
			want:    "worker:0 lost the connection to worker:1: EOF",
		},
		"another one left": {
			failure: &clusterpb.GroupFailure{Lost: "worker:1", Reason: "EOF"}, leaves: "worker:2",
			want: "worker:2 has left the group",
		},
		"something else": {failure: &clusterpb.GroupFailure{Reason: "the calls differ"}, want: "the calls differ"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, client := serve(t,
				&fakeRuns{run: Run{ID: 1, Tasks: []Task{{Name: "worker:0"}, {Name: "worker:1"}, {Name: "worker:2"}}}})
			streams := map[string]joining{}
			for _, task := range []string{"worker:0", "worker:1", "worker:2"} {
				streams[task] = join(t, client, task, 0)
			}
			for _, j := range streams {
				j.until(t, func(u *clusterpb.GroupUpdate) bool { return len(u.GetMembers()) == 3 })
			}
			answer := make(chan string, 1)
			go func() {
				f := proto.CloneOf(c.failure)
				f.Run, f.Task = 1, "worker:0"
				over, err := client.Fail(t.Context(), f)
				if err != nil {
					t.Error(err)
				}
				answer <- over.GetReason()
			}()
			if c.failure.GetLate() {
				streams["worker:0"].until(t, (*clusterpb.GroupUpdate).GetAsks)
				if c.leaves == "" {
					c.said["worker:0"] = &clusterpb.GroupProgress{Calls: 5, Calling: true}
				}
			}
			for task, p := range c.said {
				p.Run, p.Task = 1, task
				if _, err := client.Progress(t.Context(), p); err != nil {
					t.Error(err)
				}
			}
			if c.leaves != "" {
				streams[c.leaves].leave()
			}
			if got := <-answer; got != c.want {
				t.Errorf("%q, not %q", got, c.want)
			}
			for task, j := range streams {
				if task == c.leaves {
					continue
				}
				if u := j.until(t, func(u *clusterpb.GroupUpdate) bool {
					return u.GetOver() != "" || len(u.GetMembers()) > 0
				}); u.GetOver() != c.want {
					t.Errorf("%s hears %v", task, u)
				}
			}
			again, err := client.Fail(t.Context(), &clusterpb.GroupFailure{Run: 1, Task: "worker:0", Reason: "later"})
			if err != nil || again.GetReason() != c.want {
				t.Errorf("the next one hears %v, %v", again, err)
			}
			if _, err := client.Fail(t.Context(), &clusterpb.GroupFailure{Run: 1, Task: "worker:3"}); status.Code(err) !=
				codes.NotFound {
				t.Errorf("one that is no member: %v", err)
			}
		})
	}
}

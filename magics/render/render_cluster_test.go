package render

import (
	"html/template"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestClusterNotAllReady: status counts the executors that are ready, and shows for what a run waits
// and when a note was made in which run.
func TestClusterNotAllReady(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 15, 42, 23, 0, time.Local)
	st := &clusterpb.ClusterStatus{
		Name: "c", Backend: "spark", State: "ready", Roles: []*clusterpb.Role{{Name: "worker", Count: 2}},
		Executors: []*clusterpb.ExecutorStatus{
			{Id: "0", Task: "worker:0", State: "ready"}, {Id: "1", Task: "worker:1", State: "pending"},
		},
		Notes: []*clusterpb.Note{{Text: "worker:1 was killed", Warning: true, Run: 5, UnixNano: at.UnixNano()}},
		Run:   &clusterpb.RunStatus{Id: 5, State: "starting", Program: "main_fun", Waiting: "worker:1: no slot is free"},
	}
	for state, want := range map[string]string{
		"ready": "2 workers, 1 of 2 ready\n", "running": "2 workers, running, 1 of 2 ready\n",
		"reserving": "2 workers, reserving, 1 of 2 ready\n",
	} {
		st.State = state
		b := ClusterView(st, func(s string) string { return s })
		for _, text := range []string{
			want, "15:42:23 run 5 warning: worker:1 was killed\n", "starting · 00:00:00\nwaits for worker:1: no slot is free\n",
		} {
			if !strings.Contains(b.Text, text) ||
				!strings.Contains(b.HTML(), template.HTMLEscapeString(strings.TrimSpace(strings.SplitN(text, "\n", 2)[0]))) {
				t.Errorf("%s: no %q in\n%s", state, text, b.Text)
			}
		}
	}
	st.State = "reserving"
	if got := ClusterWords(st); got != "reserving, 1 of 2 ready, run 5 is starting 00:00:00" {
		t.Errorf("in a few words: %s", got)
	}
	st.State, st.Executors[1].State = "ready", "ready"
	if got := ClusterWords(st); got != "run 5 is starting 00:00:00" {
		t.Errorf("when all are ready: %s", got)
	}
}

package magics

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestStatusWatch: status --watch updates one display in place, as text and HTML, until the cell is interrupted, which
// leaves the run alone, or until the cluster is over.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	for _, over := range []bool{false, true} {
		s, _, f := reserved(t)
		must(t, s, "%tfcluster start main_fun")
		out, done := inCell(t, s, "%tfcluster status --watch")
		out.await(t, "running")
		f.show(t, func(st *clusterpb.ClusterStatus) {
			st.State = "running"
			st.Run.Progress = &clusterpb.Report{Step: 7, Metrics: map[string]float64{"loss": 0.5}}
			st.Run.Tasks[1].State, st.Run.Tasks[1].ExitCode, st.Run.Tasks[1].Reason = "exited", 1, "<b>gone</b>"
		})
		out.await(t, "step 7")
		if over {
			close(f.over)
		} else {
			out.interrupts <- struct{}{}
		}
		if err := ended(t, done); err != nil {
			t.Errorf("the cell ended with %v", err)
		}
		out.mu.Lock()
		displays, updates, html := len(out.order), len(out.mime), strings.Join(out.html, "")
		out.mu.Unlock()
		if displays != 1 || updates < 2 || !strings.Contains(html, "&lt;b&gt;gone") || strings.Contains(html, "<b>gone") {
			t.Errorf("%d displays, %d updates: %s", displays, updates, html)
		}
		f.mu.Lock()
		if len(f.stops)+len(f.shutdowns) != 0 {
			t.Error("the run was stopped")
		}
		f.mu.Unlock()
	}
	for _, other := range []string{"--json", "--run 1"} {
		s, _, _ := reserved(t)
		if _, err := runCode(t.Context(), s, "%tfcluster status --watch "+other, newRecord(), &fakePython{}); err == nil ||
			!strings.Contains(err.Error(), "exclude each other") {
			t.Errorf("with %s: %v", other, err)
		}
	}
}

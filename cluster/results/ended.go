package results

import (
	"fmt"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Why returns how a run that is over ended, or what a run that has not begun waits for.
func Why(st *clusterpb.RunStatus) *clusterpb.WhyReply {
	if st.GetId() == 0 {
		return &clusterpb.WhyReply{Text: "no run has been started"}
	}
	r := &clusterpb.WhyReply{Run: st.GetId()}
	if state := st.GetState(); state != cluster.RunFinished && state != cluster.RunFailed && state != cluster.RunStopped {
		r.Text = fmt.Sprintf("run %d is %s", st.GetId(), state)
		if w := st.GetWaiting(); w != "" {
			r.Text += ": it waits for " + w
		}
		return r
	}
	took := time.Duration(st.GetSeconds() * float64(time.Second))
	ended := st.GetState()
	if ended == cluster.RunStopped {
		ended = "was stopped"
	}
	text := fmt.Sprintf("no run is active: run %d %s after %s", st.GetId(), ended, duration(took))
	f := st.GetFailure()
	switch summary := strings.TrimSpace(f.GetSummary()); {
	case summary != "":
		text += ": " + summary
	case f.GetException() != "":
		text += ": " + f.GetException()
	}
	if n := len(f.GetEchoes()); n > 0 {
		text += fmt.Sprintf("; %s failed because of that", strings.Join(f.GetEchoes(), ", "))
	}
	if st.GetState() == cluster.RunFailed && f.GetTask() != "" {
		r.Culprits, r.Certain = []string{f.GetTask()}, true
	}
	r.Text = text
	return r
}

// duration is "41 s", from two minutes on "3 min".
func duration(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

package render

import (
	"fmt"
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// WhyView is a verdict about a run, and what its tasks are doing.
func WhyView(r *clusterpb.WhyReply) Bundle {
	tone := ToneNone
	if len(r.GetCulprits()) > 0 {
		tone = ToneBusy
		if r.GetCertain() {
			tone = ToneBad
		}
	}
	b := Bundle{}.title(r.GetText(), tone)
	if len(r.GetTasks()) > 0 {
		b = b.Table(doingRows(r))
	}
	return b
}

// doingRows is a row a task, those of the culprits marked. Of many tasks that do the same only some are shown.
func doingRows(r *clusterpb.WhyReply) Table {
	t := Table{Head: []string{"task", "state", "doing", "where", "step", "for", "cpu"}, Right: []int{4, 5, 6}}
	const most = 40
	hidden := 0
	for _, x := range r.GetTasks() {
		culprit := slices.Contains(r.GetCulprits(), x.GetTask())
		if len(t.Rows) >= most && !culprit {
			hidden++
			continue
		}
		tone, step, age := ToneNone, "", ""
		if culprit {
			tone = ToneBusy
		}
		if x.GetStepAgeSeconds() > 0 {
			step, age = Thousands(x.GetStep()), Clock(x.GetStepAgeSeconds())
		}
		doing := x.GetClass()
		if x.GetDetail() != "" && x.GetClass() != "stopped" {
			doing += ", " + x.GetDetail()
		}
		t.Rows = append(t.Rows, []Cell{
			{Text: x.GetTask(), Tone: tone}, {Text: x.GetState()}, {
				Text: doing,
				Tone: tone,
			}, {Text: x.GetWhere(), Tone: tone}, {Text: step}, {Text: age}, {Text: fmt.Sprintf("%.0f %%", x.GetCpuPercent())},
		})
	}
	if hidden > 0 {
		t.Rows = append(t.Rows, Row("…", fmt.Sprintf("%d more", hidden), "", "", "", "", ""))
	}
	return t.Drop()
}

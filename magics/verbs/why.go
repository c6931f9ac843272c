package verbs

import (
	"context"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var whyVerb = row{
	Verb: command.Verb{
		Name: "why", Summary: "which tasks hold the run up, or how the last one ended", Magic: true, Shell: true, Now: true,
		Options: []command.Option{jsonOption, pastClusterOption, nowOption}, Example: "why --now",
		Long: "It takes two snapshots of all tasks, a second apart, and says which of them do not wait for the others, " +
			"and where they are in the program. The program needs no change and goes on. Where the evidence does not suffice " +
			"it says that it is not sure; stacks shows more.",
	},
	run: (*invocation).why,
}

// whyWait bounds the call: the driver answers before, also if agents do not.
const whyWait = time.Minute

// why shows which tasks hold the active run up, or how the last run of a cluster ended, also of one that is over.
func (inv *invocation) why(ctx context.Context) (result.Value, error) {
	reply, err := inv.verdict(ctx)
	if err != nil {
		return nil, err
	}
	data := whyData(reply)
	return inv.answer(data, data, func() render.Bundle { return render.WhyView(reply) })
}

func (inv *invocation) verdict(ctx context.Context) (*clusterpb.WhyReply, error) {
	ctx, cancel := context.WithTimeout(ctx, whyWait)
	defer cancel()
	m, err := inv.session.Pick(ctx, inv.Command)
	if err == nil {
		reply, err := m.Client.Why(ctx, &clusterpb.WhyRequest{})
		if err = m.Explain(err); err == nil || !session.IsOver(err) {
			return reply, err
		}
	}
	h, _, err := inv.recall(ctx, false)
	if err != nil {
		return nil, err
	}
	var last *clusterpb.RunStatus
	if runs := h.GetRuns(); len(runs) > 0 {
		last = runs[len(runs)-1]
	}
	return results.Why(last), nil
}

// The JSON of why --json.
type (
	whyJSON struct {
		Run      int32       `json:"run"` // 0: there was none
		Culprits []string    `json:"culprits"`
		Certain  bool        `json:"certain"`
		Text     string      `json:"text"`
		Tasks    []taskDoing `json:"tasks"`
	}
	taskDoing struct {
		Task       string       `json:"task"`
		Step       int64        `json:"step"`             // 0: unknown
		StepAge    result.Float `json:"step_age_seconds"` // 0: unknown
		State      string       `json:"state"`
		Class      string       `json:"class"`
		Where      string       `json:"where"`
		CPUPercent result.Float `json:"cpu_percent"` // 100 is one core
	}
)

func whyData(r *clusterpb.WhyReply) *whyJSON {
	out := &whyJSON{
		Run: r.GetRun(), Culprits: append([]string{}, r.GetCulprits()...), Certain: r.GetCertain(), Text: r.GetText(),
		Tasks: []taskDoing{},
	}
	for _, t := range r.GetTasks() {
		out.Tasks = append(out.Tasks, taskDoing{
			t.GetTask(), t.GetStep(), result.Float(t.GetStepAgeSeconds()), t.GetState(), t.GetClass(), t.GetWhere(),
			result.Float(t.GetCpuPercent()),
		})
	}
	return out
}

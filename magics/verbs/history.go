package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

func historyVerb() row {
	return row{
		Verb: command.Verb{
			Name: "history", Summary: "the runs of the cluster", Magic: true, Shell: true, Now: true,
			Options: []command.Option{
				{Name: "all", Kind: command.KindFlag, Help: "also the runs that earlier clusters left in its directory"},
				{Name: "prune", Kind: command.KindDuration, Meta: "AGE", Bare: "30d", Help: "remove runs that are older and whose programs left no files, also those of other clusters in the same folder tfcluster-runs"},
				jsonOption(), pastClusterOption(), nowOption(),
			}, Example: "history",
			Long: "Also of a cluster that is over; -c takes its name, or YARN's of its application. --prune removes records and lines of old runs; a run stays whole if its program left a checkpoint, a model, an event file or another file.",
		},
		run: (*invocation).history,
	}
}

// history shows the cluster's runs, also those of an ended cluster.
func (inv *invocation) history(ctx context.Context) (result.Value, error) {
	if inv.Has("prune") {
		return nil, inv.prune(ctx)
	}
	h, p, err := inv.recall(ctx)
	if err != nil {
		return nil, err
	}
	inv.outcomes(ctx, h, p)
	if p != nil && !inv.Has("json") {
		inv.out.Stdout(inv.session.PastLine(p) + "\n")
	}
	name := inv.session.LastName()
	if c := inv.Text("cluster"); c != "" {
		name = c
	}
	if p != nil {
		name = p.Name
	}
	list, runs := make([]json.RawMessage, len(h.GetRuns())), make([]*result.RunValue, len(h.GetRuns()))
	for i, r := range h.GetRuns() {
		if list[i], err = clusterpb.ToJSON(r, true); err != nil {
			return nil, err
		}
		runs[i] = result.OfRun(name, r)
	}
	return inv.answer(list, runs, func() render.Bundle { return render.HistoryView(h) })
}

// recall returns the runs of the cluster, or those that an ended cluster left: then p is not
// nil.
func (inv *invocation) recall(ctx context.Context) (h *clusterpb.HistoryReply, p *state.ClusterRecord, err error) {
	if p, err = inv.ofApplication(); err != nil {
		return nil, nil, err
	}
	if p == nil {
		m, err := inv.session.Pick(ctx, inv.Command)
		if err == nil {
			if h, err = m.FetchHistory(ctx, inv.Has("all")); err == nil {
				return h, nil, nil
			}
			if !session.IsOver(err) {
				return nil, nil, err
			}
		}
		if p = inv.session.PastCluster(inv.Command, err); p == nil {
			return nil, nil, err
		}
	}
	r, err := inv.session.Results(p)
	if err != nil {
		return nil, nil, err
	}
	defer r.Folder.Close()
	if inv.Has("all") {
		r.Of = nil
	}
	ctx, cancel := context.WithTimeout(ctx, session.RecoverTimeout)
	defer cancel()
	runs, err := r.Runs(ctx)
	if err != nil {
		return nil, nil, err
	}
	h = &clusterpb.HistoryReply{Runs: runs}
	for _, l := range p.Applications {
		h.Leases = append(h.Leases, &clusterpb.Lease{Id: l.ID, State: l.State, SinceUnix: l.Since.Unix()})
	}
	return h, p, nil
}

// ofApplication returns the ended cluster of the application that -c names. If that cluster
// lives, the command refers to it from now on. p is nil then, and if -c names no application.
func (inv *invocation) ofApplication() (p *state.ClusterRecord, err error) {
	name := inv.Text("cluster")
	if !inv.isApplication(name) || inv.session.Options.History == nil {
		return nil, nil
	}
	if live := inv.session.Options.History.FindByApplication(name); live != "" {
		inv.Means(live)
		return nil, nil
	}
	if p = inv.session.ClusterOfApplication(name); p == nil {
		return nil, &result.ClusterError{
			Text: "no cluster of yours on this host was " + name, Remedy: inv.session.Say("logs -c "+name) + " shows what its containers wrote",
		}
	}
	return p, nil
}

// outcomes sets the state of each run's application: as the engine has it, otherwise as the
// record of the cluster, or an earlier one in the directory, has it. p is nil if the cluster
// lives, which then sets it itself.
func (inv *invocation) outcomes(ctx context.Context, h *clusterpb.HistoryReply, p *state.ClusterRecord) {
	known := map[string]string{}
	var asked []string
	ask := func(id string) {
		if _, have := known[id]; id != "" && !have {
			known[id] = ""
			asked = append(asked, id)
		}
	}
	for _, l := range h.GetLeases() {
		if p == nil && l.GetState() == "running" {
			known[l.GetId()] = l.GetState()
		} else {
			ask(l.GetId())
		}
	}
	for _, r := range h.GetRuns() {
		ask(r.GetAllocation())
	}
	if len(asked) > 0 {
		if engine, ok := inv.session.Options.Engines.OfApplication(asked[0]); ok {
			req, err := inv.requestOf(ctx, engine, p)
			if err != nil {
				req = &clusterpb.ReserveRequest{}
			}
			now := engine.History.Outcomes(ctx, req, asked)
			for _, id := range asked {
				known[id] = cmp.Or(now[id], inv.remembered(h, id), "not known to "+engine.Title+" any more")
			}
		}
	}
	for _, l := range h.GetLeases() {
		l.State = cmp.Or(known[l.GetId()], l.GetState())
	}
	for _, r := range h.GetRuns() {
		r.AllocationState = known[r.GetAllocation()]
	}
}

// remembered returns the final state of an application in its cluster's record.
func (inv *invocation) remembered(h *clusterpb.HistoryReply, id string) string {
	for _, l := range h.GetLeases() {
		if l.GetId() == id {
			return l.GetState()
		}
	}
	if p := inv.session.ClusterOfApplication(id); p != nil {
		for _, l := range p.Applications {
			if l.ID == id {
				return l.State
			}
		}
	}
	return ""
}

// prune removes old runs beside the cluster's directory.
func (inv *invocation) prune(ctx context.Context) error {
	for _, other := range []string{"json", "all"} {
		if inv.Has(other) {
			return &command.UsageError{Text: "--prune and --" + other + " exclude each other: --prune removes runs and shows none"}
		}
	}
	p, err := inv.ofApplication()
	if err != nil {
		return err
	}
	if p == nil {
		p = inv.session.PastCluster(inv.Command, nil)
	}
	if p == nil {
		return &result.ClusterError{Text: "no cluster of yours on this host has left anything", Remedy: "-c names one"}
	}
	storage, closer, err := inv.session.Options.History.Storage(p)
	if err != nil {
		return err
	}
	defer closer.Close()
	inUse, err := inv.session.Options.History.InUse()
	if err != nil {
		return err
	}
	age, root := inv.Last("prune").Duration, results.Root(p.Dir)
	done, err := results.Prune(ctx, storage, root, time.Now().Add(-age), inUse)
	if errors.Is(err, results.ErrInUse) {
		err = &result.ClusterError{Text: "a cluster uses " + root, Remedy: inv.session.Say("shutdown") + " of that cluster first"}
	}
	if err != nil && done == (results.Pruned{}) {
		return err
	}
	line := fmt.Sprintf("%s and %s of clusters removed below %s", render.Plural(int64(done.Runs), "run"), render.Plural(int64(done.Folders), "empty folder"), root)
	if done.Kept > 0 {
		line += fmt.Sprintf("; %s kept: their programs left files there", render.Plural(int64(done.Kept), "old run"))
	}
	if done.Open > 0 {
		line += fmt.Sprintf("; %s kept: their records have no end", render.Plural(int64(done.Open), "old run"))
	}
	inv.out.Stdout(line + "\n")
	return err
}

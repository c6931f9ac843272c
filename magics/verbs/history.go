package verbs

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/manifest"
	"github.com/tfcluster/tfcluster/cluster/results"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
	"github.com/tfcluster/tfcluster/magics/result"
	"github.com/tfcluster/tfcluster/magics/session"
)

var historyVerb = row{
	Verb: command.Verb{
		Name: "history", Summary: "the runs of the cluster", Magic: true, Shell: true, Now: true, Words: "[RUN…]",
		MaxWords: -1,
		Options: []command.Option{
			{Name: "all", Kind: command.KindFlag, Help: "also the runs that earlier clusters left in its directory"},
			{
				Name: "diff", Kind: command.KindFlag, Help: "what changed between two runs: code, arguments, packages, " +
					"environment, data, results; default: the last two",
			},
			{
				Name: "compare", Kind: command.KindFlag,
				Help: "a table of runs with what differs between them, and their metrics; default: all",
			},
			{
				Name: "prune", Kind: command.KindDuration, Meta: "AGE", Bare: "30d", Help: "remove runs that are older and " +
					"whose programs left no files, also those of other clusters in the same folder tfcluster-runs",
			},
			jsonOption, pastClusterOption, nowOption,
		}, Example: "history",
		Check: checkHistory,
		Long: "Also of a cluster that is over; -c takes its name, or YARN's of its application. --diff and --compare also " +
			"take runs of earlier clusters in the directory; a run of an earlier version has no manifest. " +
			"--prune removes records and lines of old runs; a run stays whole if its program left a checkpoint, a model, " +
			"an event file or another file.",
	},
	run: (*invocation).history,
}

// history shows the cluster's runs, also those of an ended cluster.
func (inv *invocation) history(ctx context.Context) (result.Value, error) {
	if inv.Has("prune") {
		return nil, inv.prune(ctx)
	}
	if inv.Has("diff") || inv.Has("compare") {
		return inv.compareRuns(ctx)
	}
	h, p, err := inv.recall(ctx, inv.Has("all"))
	if err != nil {
		return nil, err
	}
	inv.outcomes(ctx, h, p)
	name := cmp.Or(inv.Text("cluster"), inv.session.LastName())
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
// nil, and a line says so, but not with --json. With all, runs of earlier clusters in its directory are included.
func (inv *invocation) recall(ctx context.Context,
	all bool,
) (h *clusterpb.HistoryReply, p *state.ClusterRecord, err error) {
	if p, err = inv.ofApplication(); err != nil {
		return nil, nil, err
	}
	if p == nil {
		m, err := inv.session.Pick(ctx, inv.Command)
		if err == nil {
			if h, err = m.FetchHistory(ctx, all); err == nil {
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
	if all {
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
	if !inv.Has("json") {
		inv.out.Stdout(inv.session.PastLine(p) + "\n")
	}
	return h, p, nil
}

// checkHistory checks the words, which are runs to compare.
func checkHistory(c *command.Command) error {
	diff, compare := c.Has("diff"), c.Has("compare")
	switch {
	case diff && compare:
		return command.Usagef(c.Verb, "--diff and --compare exclude each other: give one of them")
	case len(c.Words) > 0 && !diff && !compare:
		return command.Usagef(c.Verb, "%s: runs can be named only with --diff or --compare: add one of them",
			command.Shorten(c.Words[0], 40))
	case diff && len(c.Words) > 2:
		return command.Usagef(c.Verb, "--diff compares two runs, not more: use --compare, which makes a table")
	}
	_, err := runNumbers(c)
	return err
}

// runNumbers returns the runs that the words name.
func runNumbers(c *command.Command) ([]int32, error) {
	var numbers []int32
	for _, w := range c.Words {
		n, err := strconv.ParseInt(w, 10, 32)
		if err != nil || n < 1 {
			return nil, command.Usagef(c.Verb, "%s is not the number of a run: history --all lists them", command.Shorten(w, 40))
		}
		numbers = append(numbers, int32(n))
	}
	return numbers, nil
}

// compareRuns shows what differs between runs.
func (inv *invocation) compareRuns(ctx context.Context) (result.Value, error) {
	numbers, err := runNumbers(inv.Command)
	if err != nil {
		return nil, err
	}
	h, p, err := inv.recall(ctx, inv.Has("all") || len(numbers) > 0)
	if err != nil {
		return nil, err
	}
	runs, err := chosenRuns(h.GetRuns(), numbers, inv.Has("diff"))
	if err != nil {
		e := &result.ClusterError{Text: err.Error(), Remedy: inv.session.Say("history --all") + " lists the runs", Code: 2}
		if errors.Is(err, errNoEarlierRun) && h.GetEarlier() > 0 {
			e.Text = fmt.Sprintf("this cluster has no earlier run to compare with; earlier ones left %s in its directory",
				render.Plural(int64(h.GetEarlier()), "run"))
			e.Remedy = "add --all to compare with those"
		}
		return nil, e
	}
	found, err := inv.manifests(ctx, p, runs)
	if err != nil {
		return nil, err
	}
	compared := make([]manifest.Run, len(runs))
	for i, r := range runs {
		compared[i] = manifest.Run{Status: r, Manifest: found[r.GetId()]}
	}
	if inv.Has("diff") {
		d := manifest.Compare(compared[0], compared[1])
		return inv.answer(d, d, func() render.Bundle { return render.DiffView(d) })
	}
	table := manifest.Tabulate(compared)
	return inv.answer(table.Rows, table.Rows, func() render.Bundle { return render.ComparisonView(table) })
}

// errNoEarlierRun says that a diff of one run lacks the other.
var errNoEarlierRun = errors.New("there is no earlier run to compare with")

// chosenRuns returns the runs with these numbers, in their order. Without numbers it returns all, or for a diff the
// last two; with one number a diff is from the run before it.
func chosenRuns(all []*clusterpb.RunStatus, numbers []int32, diff bool) ([]*clusterpb.RunStatus, error) {
	find := func(n int32) int {
		return slices.IndexFunc(all, func(r *clusterpb.RunStatus) bool { return r.GetId() == n })
	}
	var chosen []*clusterpb.RunStatus
	for _, n := range numbers {
		i := find(n)
		if i < 0 {
			return nil, fmt.Errorf("there is no run %d in the cluster's directory", n)
		}
		chosen = append(chosen, all[i])
	}
	last := len(all)
	switch {
	case len(numbers) == 0 && !diff:
		return all, nil
	case !diff || len(numbers) == 2:
		return chosen, nil
	case len(numbers) == 1:
		last = find(numbers[0]) + 1
	}
	if last < 2 {
		return nil, errNoEarlierRun
	}
	return all[last-2 : last], nil
}

// manifests returns the manifests of runs of the cluster, or, if p is not nil, of the ended cluster.
func (inv *invocation) manifests(ctx context.Context, p *state.ClusterRecord,
	runs []*clusterpb.RunStatus,
) (map[int32]*clusterpb.RunManifest, error) {
	numbers := make([]int32, len(runs))
	for i, r := range runs {
		numbers[i] = r.GetId()
	}
	if p == nil {
		m, err := inv.session.Pick(ctx, inv.Command)
		if err != nil {
			return nil, err
		}
		h, err := m.FetchHistory(ctx, false, numbers...)
		return h.GetManifests(), err
	}
	r, err := inv.session.Results(p)
	if err != nil {
		return nil, err
	}
	defer r.Folder.Close()
	ctx, cancel := context.WithTimeout(ctx, session.RecoverTimeout)
	defer cancel()
	return results.ReadManifests(ctx, r.Folder, numbers)
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
			Text: "no cluster of yours on this host was " + name, Remedy: inv.session.Say("logs -c "+name) +
				" shows what its containers wrote",
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
	for _, other := range []string{"json", "all", "diff", "compare"} {
		if inv.Has(other) {
			return &command.UsageError{
				Text: "--prune and --" + other + " exclude each other: --prune removes runs and shows none",
			}
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
		return &result.ClusterError{
			Text:   "there is no record of a cluster of yours on this host",
			Remedy: "use the host where it was reserved, and its name with -c; or remove the folders of its runs by hand",
		}
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
		err = &result.ClusterError{
			Text:   "runs were kept, because a live cluster uses " + root,
			Remedy: "end that cluster with " + inv.session.Say("shutdown") + " first",
		}
	}
	if err != nil && done == (results.Pruned{}) {
		return err
	}
	line := fmt.Sprintf("%s and %s of clusters removed below %s", render.Plural(int64(done.Runs), "run"),
		render.Plural(int64(done.Folders), "empty folder"), root)
	if done.Kept > 0 {
		line += fmt.Sprintf("; %s kept: their programs left files there", render.Plural(int64(done.Kept), "old run"))
	}
	if done.Open > 0 {
		line += fmt.Sprintf("; %s kept: their records have no end", render.Plural(int64(done.Open), "old run"))
	}
	inv.out.Stdout(line + "\n")
	return err
}

package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Change is a fact that differs between two runs. An empty value means that the run does not have it.
type Change struct {
	Kind   Kind   `json:"kind"`
	Name   string `json:"name"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// Diff is what changed between two runs.
type Diff struct {
	Runs    []int32           `json:"runs"`    // both numbers
	Changes []Change          `json:"changes"` // of what they ran with, in the order in which they are shown
	Results []Change          `json:"results"` // state, seconds and metrics
	Sources map[string]string `json:"sources"` // unified diffs of changed texts by file, as far as both were kept
	Missing []int32           `json:"missing"` // runs without a manifest, of which less is known
}

// kinds returns the kinds of facts in the order in which changes are shown.
func kinds() []Kind {
	return []Kind{Program, Code, Git, Argument, Value, Option, Tasks, Data, File, Version, Package, Environment, Seed}
}

// maxDiff bounds the diff of a text, in lines.
const maxDiff = 400

// Compare returns what changed from run a to run b.
func Compare(a, b Run) *Diff {
	d := &Diff{
		Runs: []int32{a.Status.GetId(), b.Status.GetId()}, Changes: []Change{}, Results: []Change{},
		Sources: map[string]string{}, Missing: []int32{},
	}
	for _, r := range []Run{a, b} {
		if r.Manifest == nil {
			d.Missing = append(d.Missing, r.Status.GetId())
		}
	}
	if len(d.Missing) > 0 { // what only one of them can have is no change
		a.Manifest, b.Manifest = nil, nil
	}
	before, after := factsOf(a), factsOf(b)
	for _, kind := range kinds() {
		d.Changes = append(d.Changes, changes(kind, before[kind], after[kind])...)
	}
	d.Results = append(
		changes("state", map[string]string{"": a.Status.GetState()}, map[string]string{"": b.Status.GetState()}),
		changes("seconds", map[string]string{"": seconds(a)}, map[string]string{"": seconds(b)})...)
	d.Results = append(d.Results, changes("metric", metricTexts(a), metricTexts(b))...)
	d.compareSources(a, b)
	return d
}

func changes(kind Kind, before, after map[string]string) []Change {
	names := slices.Sorted(maps.Keys(before))
	for name := range after {
		if _, both := before[name]; !both {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, byName)
	found := []Change{}
	for _, name := range names {
		if before[name] != after[name] {
			found = append(found, Change{kind, name, before[name], after[name]})
		}
	}
	return found
}

// byName orders names, those of positions by number.
func byName(a, b string) int {
	x, xerr := strconv.Atoi(a)
	y, yerr := strconv.Atoi(b)
	if xerr == nil && yerr == nil {
		return cmp.Compare(x, y)
	}
	return strings.Compare(a, b)
}

func seconds(r Run) string { return strconv.FormatFloat(r.Status.GetSeconds(), 'f', 1, 64) }

func metricTexts(r Run) map[string]string {
	texts := map[string]string{}
	for name, v := range r.Status.GetProgress().FiniteMetrics() {
		texts[name] = strconv.FormatFloat(v, 'g', 6, 64)
	}
	return texts
}

// compareSources adds the diffs of the texts that changed.
func (d *Diff) compareSources(a, b Run) {
	before, after := sourcesOf(a.Manifest), sourcesOf(b.Manifest)
	for name, old := range before {
		text, both := after[name]
		if !both || text == old {
			continue
		}
		diff := udiff.Unified(fmt.Sprintf("run %d/%s", d.Runs[0], name), fmt.Sprintf("run %d/%s", d.Runs[1], name), old, text)
		if lines := strings.SplitAfter(diff, "\n"); len(lines) > maxDiff {
			diff = strings.Join(lines[:maxDiff], "") + fmt.Sprintf("… %d more lines\n", len(lines)-maxDiff)
		}
		d.Sources[name] = diff
	}
}

// sourcesOf returns the texts that one of the run's tasks sent.
func sourcesOf(m *clusterpb.RunManifest) map[string]string {
	found := map[string]string{}
	maps.Copy(found, m.GetCommon().GetSources())
	for _, t := range m.GetTasks() {
		maps.Copy(found, t.GetSources())
	}
	return found
}

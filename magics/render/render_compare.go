package render

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/manifest"
	"github.com/tfcluster/tfcluster/internal/termtext"
	"github.com/tfcluster/tfcluster/magics/command"
)

// maxFact is how much of a value a table shows, in characters.
const maxFact = 60

// DiffView is what changed between two runs.
func DiffView(d *manifest.Diff) Bundle {
	a, b := fmt.Sprintf("run %d", d.Runs[0]), fmt.Sprintf("run %d", d.Runs[1])
	view := Title(a + " → " + b)
	for _, run := range d.Missing {
		view = view.Busy(fmt.Sprintf("run %d has no manifest: it was not entered, or was started by an earlier version; "+
			"only its arguments and results are compared", run))
	}
	table := func(changes []manifest.Change) Bundle {
		t := Table{Head: []string{"what", "name", a, b}}
		for _, c := range changes {
			t.Rows = append(t.Rows, Row(string(c.Kind), factName(c.Name), fact(c.Before), fact(c.After)))
		}
		return t.Drop().Bundle()
	}
	if len(d.Changes) == 0 {
		view = view.Line("nothing changed in what they ran with")
	} else {
		view = view.Append(table(d.Changes))
	}
	for _, name := range slices.Sorted(maps.Keys(d.Sources)) {
		view = view.Details("changes in "+termtext.Visible(name),
			Bundle{}.Code(strings.Split(termtext.Visible(strings.TrimRight(d.Sources[name], "\n")), "\n")...))
	}
	if len(d.Results) > 0 {
		view = view.Line("results").Append(table(d.Results))
	}
	return view
}

// ComparisonView is a row a run, with a column for what differs.
func ComparisonView(c *manifest.Comparison) Bundle {
	if len(c.Rows) == 0 {
		return Line("no runs yet")
	}
	t := Table{Head: []string{"run", "program"}, Right: []int{0}}
	for _, name := range c.Columns {
		t.Head = append(t.Head, factName(name))
	}
	for _, name := range c.Metrics {
		t.Right = append(t.Right, len(t.Head))
		t.Head = append(t.Head, factName(name))
	}
	t.Head = append(t.Head, "took", "state")
	for _, r := range c.Rows {
		row := Row(strconv.Itoa(int(r.Run)), termtext.Visible(r.Program))
		for _, name := range c.Columns {
			row = append(row, Cell{Text: fact(r.Differing[name])})
		}
		for _, name := range c.Metrics {
			text := ""
			if v, ok := r.Metrics[name]; ok {
				text = Number(v)
			}
			row = append(row, Cell{Text: text})
		}
		t.Rows = append(t.Rows, append(row, Cell{Text: Clock(r.Seconds)}, Cell{Text: r.State, Tone: runTone(r.State)}))
	}
	return t.Bundle()
}

// factName names positions of the command line.
func factName(name string) string {
	if _, err := strconv.Atoi(name); err == nil {
		return "argument " + name
	}
	return command.Shorten(termtext.Visible(name), maxFact)
}

func fact(value string) string {
	if value == "" {
		return "–"
	}
	return command.Shorten(termtext.Visible(strings.ReplaceAll(value, "\n", " ")), maxFact)
}

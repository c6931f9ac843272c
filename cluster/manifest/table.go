package manifest

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
)

// Row is a run in a comparison.
type Row struct {
	Run       int32              `json:"run"`
	Program   string             `json:"program"`
	State     string             `json:"state"`
	Seconds   float64            `json:"seconds"`
	Differing map[string]string  `json:"differing"` // what is not the same in all runs that are compared
	Metrics   map[string]float64 `json:"metrics"`
}

// Comparison is a table of runs.
type Comparison struct {
	Rows    []Row
	Columns []string // names in Differing, in the order in which they are shown
	Metrics []string // names of metrics
}

// Tabulate compares runs: arguments, values of the notebook, data, tasks and code that are not the same in all of
// them, and their metrics.
func Tabulate(runs []Run) *Comparison {
	t := &Comparison{}
	all := make([]map[string]string, len(runs))
	for i, r := range runs {
		all[i] = columnsOf(factsOf(r))
		t.Rows = append(t.Rows, Row{
			Run: r.Status.GetId(), Program: r.Status.GetProgram(), State: r.Status.GetState(), Seconds: r.Status.GetSeconds(),
			Differing: map[string]string{}, Metrics: r.Status.GetProgress().FiniteMetrics(),
		})
		for name := range t.Rows[i].Metrics {
			if !slices.Contains(t.Metrics, name) {
				t.Metrics = append(t.Metrics, name)
			}
		}
	}
	names := map[string]bool{}
	for _, columns := range all {
		for name := range columns {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !slices.ContainsFunc(all, func(c map[string]string) bool { return c[name] != all[0][name] }) {
			continue
		}
		t.Columns = append(t.Columns, name)
		for i := range all {
			t.Rows[i].Differing[name] = all[i][name]
		}
	}
	slices.Sort(t.Metrics)
	return t
}

// columnsOf returns the facts that a comparison shows by the names of their columns.
func columnsOf(f facts) map[string]string {
	columns := map[string]string{}
	for _, kind := range []Kind{Argument, Value, Option} {
		maps.Copy(columns, f[kind])
	}
	for kind, name := range map[Kind]string{Tasks: "tasks", Git: "git"} {
		columns[name] = f[kind][""]
	}
	var code []string
	for _, name := range slices.Sorted(maps.Keys(f[Code])) {
		code = append(code, name+f[Code][name])
	}
	if len(code) > 0 {
		sum := sha256.Sum256([]byte(strings.Join(code, "\x00")))
		columns["code"] = hex.EncodeToString(sum[:4])
	}
	columns["data"] = strings.Join(slices.Sorted(maps.Keys(f[Data])), ", ")
	return columns
}

package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Difference is an entry of which the tasks of a run have different values.
type Difference struct {
	Kind   Kind
	Name   string
	Groups []Group // the largest one last
}

// Group is the tasks that have a value. An empty value means that a package is not installed.
type Group struct {
	Value string
	Tasks []string // in the order of CompareTasks
}

// gpuModels is the name of the entry of a task's GPUs among the versions.
const gpuModels = "GPU"

// Differences returns the differences between the tasks of a run that may make one of them fail, be slower, or
// compute something else: other code, versions, packages and GPUs. Tasks without an entry do not count: a ps imports
// less than a worker.
func Differences(tasks map[string]*clusterpb.TaskManifest) []Difference {
	type entry struct {
		kind Kind
		name string
	}
	values := map[entry]map[string][]string{} // by value: tasks
	add := func(kind Kind, name, value, task string) {
		e := entry{kind, name}
		if values[e] == nil {
			values[e] = map[string][]string{}
		}
		values[e][value] = append(values[e][value], task)
	}
	for _, task := range slices.SortedFunc(maps.Keys(tasks), compareNames) {
		m := tasks[task]
		for _, e := range texts() {
			if e.kind != Code && e.kind != Version && e.kind != Package {
				continue
			}
			for name, value := range *e.of(m) {
				add(e.kind, name, value, task)
			}
		}
		for _, name := range m.GetAbsent() {
			if m.GetPackages()[name] == "" {
				add(Package, name, "", task)
			}
		}
		if models := gpusOf(m); models != "" {
			add(Version, gpuModels, models, task)
		}
	}
	var found []Difference
	for e, groups := range values {
		if len(groups) > 1 {
			found = append(found, Difference{e.kind, e.name, grouped(groups)})
		}
	}
	slices.SortFunc(found, byImportance)
	return found
}

// grouped returns the groups, the largest one last; of equal ones the one with the first task is the largest.
func grouped(byValue map[string][]string) []Group {
	var groups []Group
	for value, tasks := range byValue {
		groups = append(groups, Group{value, tasks})
	}
	slices.SortFunc(groups, func(a, b Group) int { return compareNames(a.Tasks[0], b.Tasks[0]) })
	most := slices.MaxFunc(groups, func(a, b Group) int { return cmp.Compare(len(a.Tasks), len(b.Tasks)) })
	return append(slices.DeleteFunc(groups, func(g Group) bool { return g.Value == most.Value }), most)
}

// byImportance orders differences: code, versions, well-known packages, other packages.
func byImportance(a, b Difference) int {
	rank := func(d Difference) int {
		switch i := slices.Index([]string{"tensorflow", "keras", "torch", "jax", "jaxlib", "numpy"}, d.Name); {
		case d.Kind == Code:
			return 0
		case d.Kind == Version:
			return 1
		case i >= 0:
			return 2 + i
		default:
			return 20
		}
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.Name, b.Name))
}

func compareNames(a, b string) int {
	x, _ := cluster.ParseTask(a) // "" of a name that is none
	y, _ := cluster.ParseTask(b)
	return cmp.Or(cluster.CompareTasks(x, y), strings.Compare(a, b))
}

// gpusOf returns the models of a task's GPUs: "H100 ×2".
func gpusOf(m *clusterpb.TaskManifest) string {
	counts := map[string]int{}
	for _, g := range m.GetGpus() {
		counts[g.GetName()]++
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s ×%d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// String returns the difference in one line: worker:3 has numpy 1.26, the others 2.1.
func (d Difference) String() string {
	rest := d.Groups[len(d.Groups)-1]
	others := "the others"
	if len(rest.Tasks) == 1 {
		others = rest.Tasks[0]
	}
	if d.Kind == Code {
		var tasks []string
		for _, g := range d.Groups[:len(d.Groups)-1] {
			tasks = append(tasks, g.Tasks...)
		}
		return fmt.Sprintf("%s %s another %s than %s", cluster.TaskList(tasks), verb(tasks, "runs", "run"),
			oneLine(d.Name), others)
	}
	var parts []string
	for i, g := range d.Groups[:len(d.Groups)-1] {
		who := cluster.TaskList(g.Tasks)
		switch {
		case i > 0:
			parts = append(parts, who+" "+valueText(g.Value))
		case g.Value == "":
			parts = append(parts, fmt.Sprintf("%s %s no %s", who, verb(g.Tasks, "has", "have"), oneLine(d.Name)))
		default:
			parts = append(parts,
				fmt.Sprintf("%s %s %s %s", who, verb(g.Tasks, "has", "have"), oneLine(d.Name), valueText(g.Value)))
		}
	}
	return strings.Join(append(parts, others+" "+valueText(rest.Value)), ", ")
}

func verb(tasks []string, one, several string) string {
	if len(tasks) == 1 {
		return one
	}
	return several
}

func valueText(value string) string {
	if value == "" {
		return "none"
	}
	return oneLine(value)
}

// oneLine returns a text of a task as a part of a line.
func oneLine(text string) string {
	clean := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
	return shorten(clean, maxShown)
}

// maxShown bounds a name or a value in a line, in bytes.
const maxShown = 120

// Lines returns the differences as lines, at most about most of them. A last line counts the others; where names the
// place in which they can be read.
func Lines(differences []Difference, most int, where string) []string {
	var lines []string
	for i, d := range differences {
		if i == most {
			return append(lines, fmt.Sprintf("%d more differences between the tasks: %s", len(differences)-i, where))
		}
		lines = append(lines, d.String())
	}
	return lines
}

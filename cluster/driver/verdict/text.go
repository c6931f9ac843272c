package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
)

// notSure begins the text of a verdict whose evidence disagrees or does not suffice.
const notSure = "Not sure: "

// most is how many groups of tasks a text describes.
const most = 3

// text is "worker:1 is 41 s behind: in load_batch (mnist.py:33), CPU 2 %, waiting for a file; 0, 2, 3 wait for it in
// the all-reduce of step 117".
func (e *evidence) text(of []int) string {
	var parts []string
	for _, group := range e.alike(of, func(i int) string { return e.doing(i) }) {
		if len(parts) == most {
			parts = append(parts, "…")
			break
		}
		names := e.names(group)
		switch age := e.age(group); {
		case e.found[group[0]].Class == Exit && e.tasks[group[0]].over():
			parts = append(parts, names+" "+verb(group, "has", "have")+" ended")
			continue
		case age < 0:
			names += " " + verb(group, "holds", "hold") + " the run up"
		case len(e.waiting) == 0:
			names += " " + verb(group, "has", "have") + " made no step for " + seconds(age)
		default:
			names += " " + verb(group, "is", "are") + " " + seconds(age) + " behind"
		}
		parts = append(parts, names+": "+e.doing(group[0]))
	}
	if len(e.waiting) > 0 {
		pronoun, role := "them", ""
		if len(of) == 1 {
			pronoun, role = "it", e.tasks[of[0]].ID.Role
		}
		parts = append(parts,
			fmt.Sprintf("%s %s for %s%s", e.others(e.waiting, role), verb(e.waiting, "waits", "wait"), pronoun, e.at(e.waiting)))
	}
	return strings.Join(parts, "; ")
}

// doing is "in load_batch (mnist.py:33), CPU 2 %, waiting for a file".
func (e *evidence) doing(i int) string {
	f := &e.found[i]
	if f.Class == Stopped {
		return f.Detail
	}
	var parts []string
	if what := f.what(); what != "" {
		parts = append(parts, what)
	}
	if f.Where != "" {
		parts = append(parts, "in "+f.Where)
	}
	if len(e.tasks[i].Snapshots) > 0 {
		parts = append(parts, fmt.Sprintf("CPU %.0f %%", f.CPU))
	}
	if f.Detail != "" {
		parts = append(parts, f.Detail)
	}
	return strings.Join(parts, ", ")
}

// what is the class in words, where the rest of the text does not say it.
func (f *Finding) what() string {
	switch {
	case f.Phase == Exporting && f.Class == Checkpoint:
		return "exporting a model"
	case f.Class == Checkpoint && f.loads:
		return "loading a checkpoint"
	case f.Class == Checkpoint:
		return "saving a checkpoint"
	case f.Class == Input:
		return "reading input"
	case f.Class == Exit && f.Detail == "":
		return "its program has returned, and its process is ending"
	case f.Class == Computing && f.Detail == "":
		return "computing"
	}
	return ""
}

// at is " in the all-reduce of step 117".
func (e *evidence) at(waiting []int) string {
	operation, step := e.found[waiting[0]].Operation, e.step(waiting[0])
	for _, i := range waiting {
		if e.found[i].Operation != operation {
			operation = ""
		}
		if e.step(i) != step {
			step = -1
		}
	}
	switch {
	case operation != "" && step >= 0:
		return fmt.Sprintf(" in the %s of step %d", operation, step+1)
	case operation != "":
		return " in the " + operation
	case step >= 0:
		return fmt.Sprintf(" in step %d", step+1)
	}
	return ""
}

// differentText is of tasks that wait in different operations.
func (e *evidence) differentText(apart []int) string {
	var parts []string
	for _, group := range e.alike(e.waiting, func(i int) string { return e.found[i].Operation }) {
		text := e.names(group) + " " + verb(group, "waits", "wait")
		if operation := e.found[group[0]].Operation; operation != "" {
			text += " in the " + operation + ","
		}
		if where := e.found[group[0]].Where; where != "" {
			text += " in " + where
		}
		parts = append(parts, text)
	}
	text := strings.Join(parts, "; ") + ": each waits for the other"
	if age := e.age(apart); age >= 0 {
		text += fmt.Sprintf(", for %s", seconds(age))
	}
	return text
}

// perhapsText is of tasks that differ from the others, though all wait.
func (e *evidence) perhapsText(apart []int) string {
	var parts []string
	for _, group := range e.alike(apart, func(i int) string { return e.found[i].Where }) {
		text := e.names(group)
		if where := e.found[group[0]].Where; where != "" {
			text += " " + verb(group, "waits", "wait") + " in " + where
		}
		if step := e.step(group[0]); step >= 0 {
			text += fmt.Sprintf(" after step %d", step)
		}
		if gpu := e.tasks[group[0]].GPU; gpu >= 0 {
			text += fmt.Sprintf(", GPU %.0f %%", gpu)
		}
		parts = append(parts, text)
	}
	rest := e.with(e.waiting, func(i int) bool { return !slices.Contains(apart, i) })
	if len(rest) > 0 {
		parts = append(parts, fmt.Sprintf("%s %s elsewhere%s", e.names(rest), verb(rest, "waits", "wait"), e.at(rest)))
	}
	return notSure + strings.Join(parts, "; ")
}

// disagreeText is of tasks that do not wait, though others that wait have made fewer steps.
func (e *evidence) disagreeText(own, behind []int) string {
	return fmt.Sprintf("%s%s %s %s, but %s %s the lowest step, %d", notSure, e.names(own), verb(own, "is", "are"),
		e.doing(own[0]), e.names(behind), verb(behind, "has", "have"), e.step(behind[0]))
}

// movingText is of a run that makes steps.
func (e *evidence) movingText() string {
	if e.run.Silence < 0 {
		return "the program reports no steps, and its tasks move: their stacks differ from those of a second before"
	}
	text := "the run makes steps: the last one ended " + seconds(e.run.Silence) + " ago"
	if e.run.Median > 0 {
		text += fmt.Sprintf(", the median takes %s", duration(e.run.Median))
	}
	return text
}

// unsureText is of a run whose snapshots show no difference between the tasks.
func (e *evidence) unsureText() string {
	since := ""
	if e.run.Silence >= 0 {
		since = "no step for " + seconds(e.run.Silence) + "; "
	}
	switch {
	case len(e.unknown) > 0:
		var why []string
		for _, group := range e.alike(e.unknown, func(i int) string { return e.found[i].Detail }) {
			text := e.names(group)
			if detail := e.found[group[0]].Detail; detail != "" {
				text += " (" + detail + ")"
			}
			why = append(why, text)
		}
		return notSure + since + "there is no stack of " + strings.Join(why, ", ") + " that shows anything"
	case len(e.computing) > 0 && len(e.waiting) == 0:
		return since + e.names(e.computing) + " " + verb(e.computing, "computes", "compute") +
			": nothing shows that the run hangs"
	case len(e.waiting) > 0:
		return notSure + since + e.names(e.waiting) + " " + verb(e.waiting, "waits", "wait") + e.at(e.waiting) +
			", and nothing shows for which task"
	}
	return notSure + since + "no task that trains is running"
}

// age is how long ago the last step of tasks ended, of the one that waits the longest; -1: no step is known.
func (e *evidence) age(of []int) time.Duration {
	age := time.Duration(-1)
	for _, i := range of {
		age = max(age, e.tasks[i].Age)
	}
	if age < 0 {
		return e.run.Silence
	}
	return age
}

// alike groups tasks by a text, in their order.
func (e *evidence) alike(of []int, key func(int) string) [][]int {
	var groups [][]int
	at := map[string]int{}
	for _, i := range of {
		k := key(i)
		if n, ok := at[k]; ok {
			groups[n] = append(groups[n], i)
			continue
		}
		at[k] = len(groups)
		groups = append(groups, []int{i})
	}
	return groups
}

// names is "worker:0-2, chief:0".
func (e *evidence) names(of []int) string { return e.others(of, "") }

// others is names, of which those of a role are numbers alone: "0, 2-3".
func (e *evidence) others(of []int, role string) string {
	var ids []cluster.TaskID
	for _, i := range of {
		ids = append(ids, e.tasks[i].ID)
	}
	slices.SortFunc(ids, cluster.CompareTasks)
	var parts []string
	for i := 0; i < len(ids); {
		end := i + 1
		for end < len(ids) && ids[end].Role == ids[i].Role && ids[end].Index == ids[end-1].Index+1 {
			end++
		}
		if end-i == 2 {
			end-- // "0, 1" is as short as "0-1"
		}
		name := ids[i].String()
		if ids[i].Role == role {
			name = strconv.Itoa(ids[i].Index)
		}
		if end-i > 1 {
			name += "-" + strconv.Itoa(ids[end-1].Index)
		}
		parts, i = append(parts, name), end
	}
	return strings.Join(parts, ", ")
}

// verb is a verb of as many tasks.
func verb(of []int, one, several string) string {
	if len(of) == 1 {
		return one
	}
	return several
}

// seconds is "41 s", from two minutes on "3 min".
func seconds(d time.Duration) string {
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f min", d.Minutes())
}

// duration is a step's time with three digits.
func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%.3g ms", float64(d.Microseconds())/1000)
	}
	return fmt.Sprintf("%.3g s", d.Seconds())
}

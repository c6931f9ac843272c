package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SelectTasks returns the tasks that words select, in the order of all: worker:1, worker, which
// is each of its tasks, worker:0-2, or several of these separated by commas, as FoldTasks writes
// them: chief,worker:0-2,5. No words select all. A part that selects none is an error, which
// names the tasks.
func SelectTasks(all []TaskID, words []string) ([]TaskID, error) {
	if len(words) == 0 {
		return all, nil
	}
	chosen := map[TaskID]bool{}
	for _, word := range words {
		role := ""
		for part := range strings.SplitSeq(word, ",") {
			if role != "" && part != "" && part[0] >= '0' && part[0] <= '9' { // another index of the role
				part = role + ":" + part
			}
			s, err := parseSelection(part)
			if err != nil {
				return nil, err
			}
			role = s.role
			if !s.choose(all, chosen) {
				return nil, fmt.Errorf("no task is %s: the cluster has %s", part, foldTasks(all))
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t TaskID) bool { return !chosen[t] }), nil
}

// selection is one part of a word of SelectTasks.
type selection struct {
	role        string
	first, last int // indexes
}

func parseSelection(part string) (selection, error) {
	wrong := fmt.Errorf("tasks %q: want worker:1, worker or worker:0-2", part)
	role, indexes, given := strings.Cut(part, ":")
	if !roleName().MatchString(role) {
		return selection{}, wrong
	}
	if !given {
		return selection{role, 0, maxTasks}, nil
	}
	from, to, isRange := strings.Cut(indexes, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.Atoi(from)
	if err != nil {
		return selection{}, wrong
	}
	last, err := strconv.Atoi(to)
	if err != nil || first < 0 || last < first {
		return selection{}, wrong
	}
	return selection{role, first, last}, nil
}

// choose adds the selected tasks to chosen; it returns false if there is none.
func (s selection) choose(all []TaskID, chosen map[TaskID]bool) (found bool) {
	for _, t := range all {
		if t.Role == s.role && s.first <= t.Index && t.Index <= s.last {
			chosen[t], found = true, true
		}
	}
	return found
}

// FoldTasks returns a short name of tasks: "worker:0-3 ×4" for consecutive ones of a role,
// "chief,worker:0,2 ×3" otherwise, "worker:1" for one. Names that are not of tasks are left out.
func FoldTasks(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return fmt.Sprintf("%s ×%d", TaskList(names), len(names))
}

// TaskList is FoldTasks without the number of tasks.
func TaskList(names []string) string {
	var tasks []TaskID
	for _, name := range names {
		if t, err := ParseTask(name); err == nil {
			tasks = append(tasks, t)
		}
	}
	slices.SortFunc(tasks, CompareTasks)
	return foldTasks(tasks)
}

// foldTasks returns the names of tasks, which are in the order of CompareTasks.
func foldTasks(tasks []TaskID) string {
	var parts []string
	for i := 0; i < len(tasks); {
		end := i + 1
		for end < len(tasks) && tasks[end].Role == tasks[i].Role {
			end++
		}
		part := tasks[i].Role
		if part != Chief {
			part += ":" + foldIndexes(tasks[i:end])
		}
		parts, i = append(parts, part), end
	}
	return strings.Join(parts, ",")
}

// foldIndexes returns "0-3,7" for the indexes 0 1 2 3 7.
func foldIndexes(tasks []TaskID) string {
	var parts []string
	for i := 0; i < len(tasks); {
		end := i + 1
		for end < len(tasks) && tasks[end].Index == tasks[end-1].Index+1 {
			end++
		}
		part := strconv.Itoa(tasks[i].Index)
		if end-i > 1 {
			part += "-" + strconv.Itoa(tasks[end-1].Index)
		}
		parts, i = append(parts, part), end
	}
	return strings.Join(parts, ",")
}

package cluster

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// SelectTasks returns the tasks that words select, in the order of all: worker:1, worker, which
// means each of its tasks, or worker:0-2. No words select all. A word that selects none is an
// error, which names the tasks.
func SelectTasks(all []TaskID, words []string) ([]TaskID, error) {
	if len(words) == 0 {
		return all, nil
	}
	chosen := map[TaskID]bool{}
	for _, word := range words {
		first, last, role, err := parseSelection(word)
		if err != nil {
			return nil, err
		}
		found := false
		for _, t := range all {
			if t.Role == role && first <= t.Index && t.Index <= last {
				chosen[t], found = true, true
			}
		}
		if !found {
			return nil, fmt.Errorf("no task is %s: the cluster has %s", word, describeTasks(all))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(t TaskID) bool { return !chosen[t] }), nil
}

// parseSelection parses a word of SelectTasks: the role, and its first and last index.
func parseSelection(word string) (first, last int, role string, err error) {
	role, indexes, given := strings.Cut(word, ":")
	if !roleName().MatchString(role) {
		return 0, 0, "", selectionError(word)
	}
	if !given {
		return 0, maxTasks, role, nil
	}
	from, to, isRange := strings.Cut(indexes, "-")
	if !isRange {
		to = from
	}
	first, err = strconv.Atoi(from)
	if err == nil {
		last, err = strconv.Atoi(to)
	}
	if err != nil || first < 0 || last < first || last > maxTasks {
		return 0, 0, "", selectionError(word)
	}
	return first, last, role, nil
}

func selectionError(word string) error {
	return fmt.Errorf("tasks %q: want worker:1, worker or worker:0-2", word)
}

// describeTasks lists tasks by role: "chief, worker:0-3".
func describeTasks(tasks []TaskID) string {
	var parts []string
	for i := 0; i < len(tasks); {
		end := i + 1
		for end < len(tasks) && tasks[end].Role == tasks[i].Role {
			end++
		}
		part := tasks[i].String()
		if end-i > 1 {
			part += "-" + strconv.Itoa(tasks[end-1].Index)
		}
		parts, i = append(parts, part), end
	}
	return strings.Join(parts, ", ")
}

package cluster

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Roles of a TensorFlow cluster (tf.train.ClusterSpec). A user may add other roles, such as a
// sidecar: they have executors and tasks but are not in TF_CONFIG.
const (
	Chief     = "chief"
	Worker    = "worker"
	PS        = "ps"
	Evaluator = "evaluator"
)

// Trains reports whether the tasks of a role train together: the chief and the workers.
func Trains(role string) bool { return role == Chief || role == Worker }

// States of a run that has ended, in RunStatus.
const (
	RunFinished = "finished"
	RunFailed   = "failed"
	RunStopped  = "stopped"
)

// TaskID identifies a task as TensorFlow does, by its role and its index in the role.
type TaskID struct {
	Role  string
	Index int
}

// String returns the form worker:1.
func (t TaskID) String() string { return t.Role + ":" + strconv.Itoa(t.Index) }

var roleName = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)
})

// ParseTask parses "worker:1"; a role without an index is its task 0.
func ParseTask(s string) (TaskID, error) {
	role, index, found := strings.Cut(s, ":")
	if !roleName().MatchString(role) {
		return TaskID{}, fmt.Errorf("task %q: want a role and an index, like worker:1", s)
	}
	if !found {
		return TaskID{Role: role}, nil
	}
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 || n > maxTasks {
		return TaskID{}, fmt.Errorf("task %q: want a role and an index, like worker:1", s)
	}
	return TaskID{Role: role, Index: n}, nil
}

// maxTasks is the maximum number of tasks of a role; a larger number is a typing error.
const maxTasks = 10_000

// roleRank returns the position of a role in lists: chief, worker, ps, evaluator, others.
func roleRank(role string) int {
	if i := slices.Index([]string{Chief, Worker, PS, Evaluator}, role); i >= 0 {
		return i
	}
	return 4
}

// CompareTasks compares tasks for lists: chief, workers, ps, evaluator, others by name.
func CompareTasks(a, b TaskID) int {
	if d := roleRank(a.Role) - roleRank(b.Role); d != 0 {
		return d
	}
	if d := strings.Compare(a.Role, b.Role); d != 0 {
		return d
	}
	return a.Index - b.Index
}

// CompareTaskNames compares names of tasks as CompareTasks does, and other names by their text.
func CompareTaskNames(a, b string) int {
	x, errX := ParseTask(a)
	y, errY := ParseTask(b)
	if errX != nil || errY != nil {
		return strings.Compare(a, b)
	}
	return CompareTasks(x, y)
}

// Tasks returns the tasks of the roles, in the order of CompareTasks.
func Tasks(roles []*clusterpb.Role) []TaskID {
	var tasks []TaskID
	for _, r := range roles {
		for i := range int(r.GetCount()) {
			tasks = append(tasks, TaskID{Role: r.GetName(), Index: i})
		}
	}
	slices.SortFunc(tasks, CompareTasks)
	return tasks
}

// Describe returns the number of executors of the roles: "7 executors = chief + 4 workers + 2 ps".
func Describe(roles []*clusterpb.Role) string {
	total := 0
	var parts []string
	sorted := slices.Clone(roles)
	slices.SortStableFunc(sorted, func(a, b *clusterpb.Role) int {
		return CompareTasks(TaskID{Role: a.GetName()}, TaskID{Role: b.GetName()})
	})
	for _, r := range sorted {
		n := int(r.GetCount())
		total += n
		switch {
		case n == 0:
		case n == 1 && (r.GetName() == Chief || r.GetName() == Evaluator):
			parts = append(parts, r.GetName())
		case n == 1 || r.GetName() == PS:
			parts = append(parts, fmt.Sprintf("%d %s", n, r.GetName()))
		default:
			parts = append(parts, fmt.Sprintf("%d %ss", n, r.GetName()))
		}
	}
	noun := "executors"
	if total == 1 {
		noun = "executor"
	}
	return fmt.Sprintf("%d %s = %s", total, noun, strings.Join(parts, " + "))
}

// Validate checks the roles of a request.
func Validate(roles []*clusterpb.Role) error {
	total := 0
	seen := map[string]bool{}
	for _, r := range roles {
		switch {
		case !roleName().MatchString(r.GetName()):
			return fmt.Errorf("role %q: a role's name is lower-case letters, digits, - and _, beginning with a letter",
				r.GetName())
		case seen[r.GetName()]:
			return fmt.Errorf("role %q is given twice", r.GetName())
		case r.GetCount() < 0 || r.GetCount() > maxTasks:
			return fmt.Errorf("%d tasks of role %s: want 0 to %d", r.GetCount(), r.GetName(), maxTasks)
		case (r.GetName() == Chief || r.GetName() == Evaluator) && r.GetCount() > 1:
			return fmt.Errorf("a cluster has one %s at most, not %d", r.GetName(), r.GetCount())
		}
		seen[r.GetName()] = true
		total += int(r.GetCount())
	}
	if total == 0 {
		return fmt.Errorf("no executors asked for: give --workers a number above 0")
	}
	return validateKinds(roles)
}

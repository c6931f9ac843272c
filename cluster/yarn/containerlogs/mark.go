package containerlogs

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
)

// Location is a used container: where its logs are read while the application runs, and which executor's
// attempt it was.
type Location struct {
	Container string             `json:"container"`
	Node      string             `json:"node"` // host:port
	Web       string             `json:"web"`  // address of its node's web interface
	Executor  cluster.ExecutorID `json:"executor"`
	Task      string             `json:"task"`
	Attempt   int                `json:"attempt"`
}

// A container's command first prints a mark that names its executor. The NodeManager keeps the output of the
// shell that starts the command in markFile, so the logs identify their container without other records.
const (
	markFile   = "prelaunch.out"
	markPrefix = "tfcluster-container "
	DriverMark = markPrefix + "driver"
)

// AgentMark returns the mark of an agent's container. It needs no quotes in a shell.
func AgentMark(task cluster.TaskID, attempt int) string {
	return fmt.Sprintf("%sof %s attempt %d", markPrefix, task, attempt)
}

// owner identifies the executor's attempt or the driver that a log belongs to.
type owner struct {
	task    string // worker:1; "" if it is not known
	attempt int
	driver  bool
}

// readMark finds the mark in the beginning of markFile.
func readMark(text string) (o owner) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == DriverMark {
			o.driver = true
		}
		var task string
		var attempt int
		if _, err := fmt.Sscanf(line, markPrefix+"of %s attempt %d", &task, &attempt); err != nil {
			continue
		}
		if _, err := cluster.ParseTask(task); err == nil {
			o.task, o.attempt = task, attempt
		}
	}
	return o
}

// heading returns the heading of a log.
func (o owner) heading(container, node, log string) string {
	at := container
	if node != "" {
		at += " on " + node
	}
	switch {
	case o.driver:
		return fmt.Sprintf("the cluster's driver: %s, %s", at, log)
	case o.task != "":
		return fmt.Sprintf("%s, attempt %d: %s, %s", o.task, o.attempt, at, log)
	}
	return at + ", " + log
}

// label returns the label of each line of a log.
func (o owner) label(container string) string {
	switch {
	case o.driver:
		return "driver"
	case o.task != "":
		return "agent of " + o.task
	}
	return container
}

// matches reports whether the query, a task, a role or a container, selects this container.
func (o owner) matches(query, container string) bool {
	return query == "" || query == container || o.task == query || strings.HasPrefix(o.task, query+":")
}

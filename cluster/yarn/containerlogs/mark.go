package containerlogs

import (
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster"
)

// Location is a container that was used: where its logs are asked for while the application
// lives, and whose they are.
type Location struct {
	Container string             `json:"container"`
	Node      string             `json:"node"` // host:port
	Web       string             `json:"web"`  // its node's web interface
	Executor  cluster.ExecutorID `json:"executor"`
	Task      string             `json:"task"`
	Attempt   int                `json:"attempt"`
}

// A container's command says first whose it is: the line goes where the NodeManager keeps
// what the shell says that starts the command, so a container's logs tell it by
// themselves, also when nobody else remembers.
const (
	markFile   = "prelaunch.out"
	markBegins = "tfcluster-container "
	DriverMark = markBegins + "driver"
)

// AgentMark is an agent's. It needs no quotes in a shell.
func AgentMark(task cluster.TaskID, attempt int) string {
	return fmt.Sprintf("%sof %s attempt %d", markBegins, task, attempt)
}

// owner is whose container a log is of.
type owner struct {
	task    string // worker:1; "" if it is no agent's that we know
	attempt int
	driver  bool
}

// readMark finds in the beginning of markFile whose container it is.
func readMark(text string) (o owner) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == DriverMark {
			o.driver = true
		}
		var task string
		var attempt int
		if _, err := fmt.Sscanf(line, markBegins+"of %s attempt %d", &task, &attempt); err != nil {
			continue
		}
		if _, err := cluster.ParseTask(task); err == nil {
			o.task, o.attempt = task, attempt
		}
	}
	return o
}

// heading is before a log's lines.
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

// label is before each line.
func (o owner) label(container string) string {
	switch {
	case o.driver:
		return "driver"
	case o.task != "":
		return "agent of " + o.task
	}
	return container
}

// wanted is whether a person who names a task, a role or a container means this one.
func (o owner) wanted(asked, container string) bool {
	return asked == "" || asked == container || o.task == asked || strings.HasPrefix(o.task, asked+":")
}

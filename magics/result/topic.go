package result

import (
	"strings"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// OtherErrors is the section of docs/errors.md for errors without one of their own.
const OtherErrors = "other-errors"

// topics are the sections of docs/errors.md for the kinds of failures; a task's own depend on how it ended.
var topics = map[string]string{
	"timeout":       "reserve-timeout",
	"engine":        "engine-error",
	"canceled":      "canceled",
	"out_of_memory": "out-of-memory",
	"step_timeout":  "step-timeout",
	"run_timeout":   "run-timeout",
	"lost":          "lost-executor",
	"source":        "feed-source",
}

// Topic returns the section of docs/errors.md about a failure.
func Topic(f *clusterpb.Failure) string {
	switch topic := topics[f.GetKind()]; {
	case topic != "":
		return topic
	case f.GetSignal() != 0:
		return "killed"
	case f.GetException() != "":
		return "exception"
	case f.GetKind() == "task":
		return "exit-code"
	}
	return OtherErrors
}

// WithHelp adds the line that names the command for more, and returns r, which may be nil. In a shell
// commands have no %.
func (r *Report) WithHelp(shell bool) *Report {
	if r == nil || r.Topic == "" {
		return r
	}
	r.Lines = append(r.Lines, "More: %tfcluster help "+r.Topic)
	if shell {
		for i, line := range r.Lines {
			if !strings.HasPrefix(line, " ") { // a line of the program
				r.Lines[i] = strings.ReplaceAll(line, "%tfcluster ", "tfcluster ")
			}
		}
	}
	return r
}

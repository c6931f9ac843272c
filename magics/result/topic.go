package result

import "github.com/tfcluster/tfcluster/cluster/clusterpb"

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

// WithHelp adds the line that names the command for more, in a notebook or in a shell, and returns r, which may be nil.
func (r *Report) WithHelp(shell bool) *Report {
	if r == nil || r.Topic == "" {
		return r
	}
	command := "%tfcluster help "
	if shell {
		command = "tfcluster help "
	}
	r.Lines = append(r.Lines, "More: "+command+r.Topic)
	return r
}

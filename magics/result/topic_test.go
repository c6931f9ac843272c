package result

import (
	"errors"
	"slices"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/docs"
	"github.com/tfcluster/tfcluster/magics/command"
)

// TestTopic: every failure has a section of docs/errors.md.
func TestTopic(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		failure *clusterpb.Failure
		want    string
	}{
		{&clusterpb.Failure{Kind: "task", Exception: "ValueError: bad batch", ExitCode: 1}, "exception"},
		{&clusterpb.Failure{Kind: "task", ExitCode: 3}, "exit-code"},
		{&clusterpb.Failure{Kind: "task", Signal: 9, ExitCode: 137}, "killed"},
		{&clusterpb.Failure{Kind: "out_of_memory", Signal: 9}, "out-of-memory"},
		{&clusterpb.Failure{Kind: "lost"}, "lost-executor"},
		{&clusterpb.Failure{Kind: "timeout"}, "reserve-timeout"},
		{&clusterpb.Failure{Kind: "engine"}, "engine-error"},
		{&clusterpb.Failure{Kind: "canceled"}, "canceled"},
		{&clusterpb.Failure{Kind: "step_timeout"}, "step-timeout"},
		{&clusterpb.Failure{Kind: "run_timeout"}, "run-timeout"},
		{&clusterpb.Failure{Kind: "source"}, "feed-source"},
		{&clusterpb.Failure{Kind: "of a later version"}, OtherErrors},
		{nil, OtherErrors},
	} {
		got := Topic(tt.failure)
		if _, ok := docs.Topic(got); got != tt.want || !ok {
			t.Errorf("%v: section %q, want %q; docs/errors.md has it: %t", tt.failure, got, tt.want, ok)
		}
	}
}

// TestWithHelp: the last line of an error names the command for more.
func TestWithHelp(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   error
		shell bool
		want  string
	}{
		{&ClusterError{Text: "x"}, false, "More: %tfcluster help other-errors"},
		{&ClusterError{Text: "x", Topic: "driver-died"}, true, "More: tfcluster help driver-died"},
		{errors.New("x"), false, "More: %tfcluster help other-errors"},
		{&command.UsageError{Verb: "start", Text: "x"}, false, "More: %tfcluster help start"},
		{&command.UsageError{Text: "no verb"}, false, "UsageError: no verb"},
		{&Interrupted{Text: "x"}, false, "KeyboardInterrupt: x"},
	} {
		lines := NewReport(tt.err).WithHelp(tt.shell).Lines
		if got := lines[len(lines)-1]; got != tt.want {
			t.Errorf("%v: %q, want %q", tt.err, got, tt.want)
		}
	}
	failed := &RunFailed{
		Failure: &clusterpb.Failure{Summary: "lost", Remedy: "%tfcluster reset", Lines: []string{"%tfcluster printed"}},
	}
	if lines := NewReport(failed).WithHelp(true).Lines; !slices.Contains(lines, "Next: tfcluster reset") ||
		!slices.Contains(lines, "  %tfcluster printed") {
		t.Errorf("in a shell: %q", lines)
	}
	if r := NewReport(nil).WithHelp(true); r != nil {
		t.Errorf("no error has the report %v", r)
	}
}

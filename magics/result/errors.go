package result

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
	"github.com/tfcluster/tfcluster/magics/command"
	"github.com/tfcluster/tfcluster/magics/render"
)

// ClusterError is a cluster that cannot do what was asked: what, and what to do next.
type ClusterError struct {
	Text   string
	Remedy string
	Code   int    // exit code on the command line; 0 means 1
	Topic  string // the section of docs/errors.md; "" means OtherErrors
}

// Error is one line: what happened, then the remedy.
func (e *ClusterError) Error() string {
	if e.Remedy == "" {
		return e.Text
	}
	return e.Text + "; " + e.Remedy
}

// RunFailed is a run, or a reservation, that ended in failure.
type RunFailed struct {
	Failure *clusterpb.Failure
	Run     *clusterpb.RunStatus // nil for a reservation or reset
}

// Error is the first cause in one line.
func (e *RunFailed) Error() string {
	if e.Failure.GetSummary() != "" {
		return e.Failure.GetSummary()
	}
	return "the run failed"
}

// Interrupted is a verb that an interrupt ended.
type Interrupted struct{ Text string }

// Error says what became of what was interrupted.
func (e *Interrupted) Error() string { return e.Text }

// Report is an error as the front end, the shim and the command line show it.
type Report struct {
	Name  string   `json:"ename"`  // UsageError, RunFailed, KeyboardInterrupt, ClusterError
	Value string   `json:"evalue"` // one line
	Lines []string `json:"lines"`  // what a cell shows: the line, then detail; no Python traceback

	Topic    string   `json:"topic,omitempty"` // what help shows of it: a section of docs/errors.md, or a verb
	Usage    bool     `json:"usage"`
	Task     string   `json:"task,omitempty"`
	Host     string   `json:"host,omitempty"`
	ExitCode int      `json:"exit_code,omitempty"` // the task's own
	Signal   int      `json:"signal,omitempty"`
	Tail     []string `json:"tail,omitempty"` // the task's last stderr lines
	Code     int      `json:"-"`              // exit code of the command line
}

// NewReport describes an error of Run or RunArgv; nil for nil.
func NewReport(err error) *Report {
	if err == nil {
		return nil
	}
	var (
		usage  *command.UsageError
		failed *RunFailed
		broken *ClusterError
		broke  *Interrupted
	)
	switch {
	case errors.As(err, &usage):
		return &Report{
			Name: "UsageError", Value: err.Error(), Lines: []string{"UsageError: " + err.Error()}, Usage: true, Code: 2,
			Topic: usage.Verb,
		}
	case errors.As(err, &failed):
		return failed.report()
	case errors.As(err, &broke), errors.Is(err, context.Canceled):
		return &Report{
			Name: "KeyboardInterrupt", Value: err.Error(), Lines: []string{"KeyboardInterrupt: " + err.Error()}, Code: 130,
		}
	case errors.As(err, &broken):
		text := errtext.WithRemedy(err.Error())
		return &Report{
			Name: "ClusterError", Value: text, Lines: []string{"ClusterError: " + text}, Code: max(1, broken.Code),
			Topic: cmp.Or(broken.Topic, OtherErrors),
		}
	}
	text := errtext.WithRemedy(PlainError(err))
	return &Report{
		Name: "ClusterError", Value: text, Lines: []string{"ClusterError: " + text}, Code: exitCodeOf(err),
		Topic: OtherErrors,
	}
}

func (e *RunFailed) report() *Report {
	f := e.Failure
	name := "RunFailed"
	if e.Run == nil {
		name = "ClusterError"
	}
	return &Report{
		Name: name, Value: e.Error(), Task: f.GetTask(), Host: f.GetHost(), ExitCode: int(f.GetExitCode()),
		Signal: int(f.GetSignal()), Tail: f.GetLines(), Code: failureCode(f), Topic: Topic(f),
		Lines: append([]string{name + ": " + e.Error()}, render.FailureDetail(f)...),
	}
}

// failureCode is the command line's exit code for a failure.
func failureCode(f *clusterpb.Failure) int {
	switch {
	case f.GetExitCode() > 0 && f.GetExitCode() < 256:
		return int(f.GetExitCode())
	case f.GetSignal() > 0:
		return 128 + int(f.GetSignal())
	}
	return max(1, kindCodes[f.GetKind()])
}

// kindCodes are the exit codes for kinds of failures; any other kind has 1.
var kindCodes = map[string]int{"usage": 2, "engine": 69, "timeout": 75, "run_timeout": 124, "canceled": 130}

// brokenTransport are words by which gRPC's own messages differ from the driver's.
var brokenTransport = [...]string{
	"connection error", "error reading from server", "transport is closing", "connection is draining", "keepalive", "EOF",
}

// Broken returns whether a call's error is gRPC's own: the connection broke, or the call took
// longer than its context.
func Broken(err error) bool {
	s, ok := status.FromError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return true
	case !ok:
		return false
	case s.Code() == codes.DeadlineExceeded:
		return strings.Contains(s.Message(), context.DeadlineExceeded.Error())
	}
	return s.Code() == codes.Unavailable &&
		slices.ContainsFunc(brokenTransport[:], func(sign string) bool { return strings.Contains(s.Message(), sign) })
}

// PlainError is an error's text without gRPC's words around it. What a lost connection means is
// session.State's Explain to decide.
func PlainError(err error) string {
	s, ok := status.FromError(err)
	switch {
	case !ok || !Broken(err):
		return clusterpb.Plain(err).Error()
	case s.Code() == codes.Unavailable:
		return "the connection to the cluster's driver broke"
	}
	return "the cluster's driver did not answer in time"
}

func exitCodeOf(err error) int {
	switch status.Code(err) {
	case codes.Unavailable:
		return 69
	case codes.InvalidArgument, codes.FailedPrecondition:
		return 2
	default:
		return 1
	}
}

// Answered turns what a driver's call ended with into an error for people.
func Answered(err error) error {
	if err == nil {
		return nil
	}
	if f := clusterpb.FailureOf(err); f != nil {
		return &RunFailed{Failure: f}
	}
	if s, ok := status.FromError(err); ok {
		switch s.Code() {
		case codes.InvalidArgument:
			return &command.UsageError{Text: s.Message()}
		case codes.Canceled:
			return &Interrupted{Text: "interrupted"}
		}
		return &ClusterError{Text: PlainError(err), Code: exitCodeOf(err)} // NewReport adds what to do
	}
	if errors.Is(err, context.Canceled) {
		return &Interrupted{Text: "interrupted"}
	}
	return err
}

package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
)

// Errors that callers distinguish.
var (
	ErrUnreachable = errors.New("YARN unreachable")
	ErrQueue       = errors.New("no such queue, or this user may not use it (--queue names another)")
	ErrTooLarge    = errors.New("more than a container of this YARN can have: request less")
	ErrLabel       = errors.New("no such node label, or the queue may not use it (--node-label names another)")
	ErrPermission  = errors.New(
		"this user may not do that: YARN's administrator can permit it, and HADOOP_USER_NAME names another user")
	// ErrGone means that the application or its attempt has ended.
	ErrGone = errors.New("the application has ended")
	// ErrRegistered means that the attempt has a master already, and its containers are not kept for
	// another process.
	ErrRegistered = errors.New("the application has an ApplicationMaster already: another driver runs this cluster")
	// ErrReplaced means that another process has registered as this master.
	ErrReplaced = errors.New(
		"another driver has taken the YARN application over, so this one ends: attach connects to that one")
)

// ErrUnusable is ErrUnreachable for a server that is reached, and whose answers cannot be used.
var ErrUnusable error = unusable{}

type unusable struct{}

func (unusable) Error() string        { return "YARN gives no usable answer" }
func (unusable) Is(target error) bool { return target == ErrUnreachable }

// exceptions maps exceptions to errors. Many of Hadoop's exceptions are YarnExceptions that differ only in
// their messages.
var exceptions = []struct {
	class, text string // text: part of the message, or "" for any
	is          error
}{
	{"InvalidResourceRequestException", "label", ErrLabel},
	{"InvalidLabelResourceRequestException", "", ErrLabel},
	{"InvalidResourceRequestException", "", ErrTooLarge},
	{"", "unknown queue", ErrQueue},
	{"", "non-leaf queue", ErrQueue},
	{"", "cannot submit applications to queue", ErrQueue},
	{"", "does not have permission to submit", ErrQueue},
	{"", "is STOPPED. Cannot accept submission", ErrQueue},
	{"ApplicationNotFoundException", "", ErrGone},
	{"ApplicationAttemptNotFoundException", "", ErrGone},
	{"InvalidToken", "", ErrGone},
	{"InvalidApplicationMasterRequestException", "already registered", ErrRegistered},
	{"InvalidApplicationMasterRequestException", "doesn't exist in cache", ErrGone},
	{"InvalidApplicationMasterRequestException", "Invalid responseId", ErrReplaced},
	{"AccessControlException", "", ErrPermission},
	{"AuthorizationException", "", ErrPermission},
}

// classify returns the error for an exception or for an application's diagnostics, or nil if it is unknown.
func classify(class, text string) error {
	for _, k := range exceptions {
		if (k.class == "" || k.class == class) && strings.Contains(text, k.text) {
			return k.is
		}
	}
	return nil
}

// explain formats an error in one line: the action, and why it failed.
func explain(action string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*ipc.RemoteError](err); ok {
		if is := classify(e.Class, e.Text); is != nil {
			return fmt.Errorf("%s: %w: YARN answers %w", action, is, e)
		}
		return fmt.Errorf("%s: YARN answers %w", action, e)
	}
	// A call that no server answered in time also wraps DeadlineExceeded, although the caller's context has
	// time left.
	unreachable := errors.Is(err, ipc.ErrUnreachable)
	if _, answered := errors.AsType[*ipc.NegotiationError](err); answered ||
		!unreachable && errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", action, err)
	}
	if !unreachable && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s: YARN did not answer in time (%w); check that its server runs, then repeat it", action, err)
	}
	if _, answered := errors.AsType[*ipc.AnswerError](err); answered {
		return fmt.Errorf("%s: %w: %w", action, ErrUnusable, err)
	}
	return fmt.Errorf("%s: %w: %w", action, ErrUnreachable, err)
}

package protocol

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tfcluster/tfcluster/cluster/yarn/ipc"
)

// What YARN refuses, and why it is silent.
var (
	ErrUnreachable = errors.New("YARN unreachable")
	ErrQueue       = errors.New("no such queue, or not for this user")
	ErrTooLarge    = errors.New("more than any node may give")
	ErrLabel       = errors.New("no such node label, or not in this queue")
	ErrPermission  = errors.New("not permitted")
	// ErrGone says that the application or its attempt has ended.
	ErrGone = errors.New("the application has ended")
	// ErrRegistered says that the attempt has a master already, which did not keep its
	// containers for another.
	ErrRegistered = errors.New("the application has a master already")
	// ErrReplaced says that another process has registered as this master.
	ErrReplaced = errors.New("another process has taken the application over")
)

// known are the exceptions that have names here. An exception of Hadoop's own often is
// a YarnException whose text alone tells it from others.
var known = []struct {
	class, text string // text: part of the message, "" for all
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

// refusal is what an exception, or an application's diagnostics, say; nil if it has no
// name here.
func refusal(class, text string) error {
	for _, k := range known {
		if (k.class == "" || k.class == class) && strings.Contains(text, k.text) {
			return k.is
		}
	}
	return nil
}

// explain makes one line of an error: what was to be done, why not.
func explain(what string, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*ipc.RemoteError](err); ok {
		if is := refusal(e.Class, e.Text); is != nil {
			return fmt.Errorf("%s: %w: YARN answers %w", what, is, e)
		}
		return fmt.Errorf("%s: YARN answers %w", what, e)
	}
	// A call that had time left, but of which no try was answered in its own, is no end of
	// the caller's context, though it holds the same error.
	gone := errors.Is(err, ipc.ErrUnreachable)
	if !gone && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w: %w", what, ErrUnreachable, err)
}

package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/colinmarc/hdfs/v2"
)

// What HDFS refuses, beside what package fs has names for.
var (
	ErrQuota       = errors.New("quota exceeded")
	ErrSafeMode    = errors.New("NameNode in safe mode")
	ErrUnreachable = errors.New("HDFS unreachable")
)

// exception is the class and the text of what HDFS itself refused with; ok is false
// for what happened on the way.
func exception(err error) (class, text string, ok bool) {
	var remote hdfs.Error
	if !errors.As(err, &remote) {
		return "", "", false
	}
	class = remote.Exception()
	return class[strings.LastIndexByte(class, '.')+1:], strings.TrimSpace(remote.Message()), true
}

// localError is a failure on this side, which trying again does not mend.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// refused says that the NameNode or this side gave an answer: the connection is fine.
func refused(err error) bool {
	if _, _, ok := exception(err); ok {
		return true
	}
	for _, e := range []error{fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, fs.ErrInvalid, syscall.ENOTEMPTY} {
		if errors.Is(err, e) {
			return true
		}
	}
	return errors.As(err, &localError{})
}

// passing says that the same may be granted a moment later.
func passing(err error) bool {
	class, text, ok := exception(err)
	if !ok {
		return !refused(err)
	}
	switch class {
	case "SafeModeException":
		return !strings.Contains(text, "turned on manually")
	case "RetriableException", "StandbyException", "NotReplicatedYetException", "RecoveryInProgressException":
		return true
	case "IOException": // DataNodes that have not called since the NameNode's start
		return strings.Contains(text, "There are 0 datanode(s) running")
	}
	return false
}

// explain makes one line of an error: what was to be done, why not, what to do.
func (f *FS) explain(verb string, at location, err error) error {
	to := "cannot " + verb + " " + at.uri
	class, text, ok := exception(err)
	line, _, _ := strings.Cut(text, "\n") // the rest is Java's stack
	switch {
	case strings.HasSuffix(class, "QuotaExceededException"):
		return fmt.Errorf("%s: %w: %s: remove files there or ask for more", to, ErrQuota, line)
	case class == "SafeModeException":
		return fmt.Errorf("%s: %w: HDFS takes no changes until its administrator ends it (hdfs dfsadmin -safemode leave)", to, ErrSafeMode)
	case ok:
		return fmt.Errorf("%s: HDFS answers %s: %s", to, class, line)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: HDFS does not let user %s", to, fs.ErrPermission, f.config.User)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: %w", to, err)
	case refused(err):
		return fmt.Errorf("%s: %w", to, cause(err))
	}
	return fmt.Errorf("%s: %w: no answer from %s for %s: %w", to, ErrUnreachable, at.key(), f.config.Bridge, cause(err))
}

// cause is an error without the path, which the line has already.
func cause(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

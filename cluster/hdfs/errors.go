package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/colinmarc/hdfs/v2"
)

// Errors of HDFS that package fs has no name for.
var (
	ErrQuota       = errors.New("quota exceeded")
	ErrSafeMode    = errors.New("the NameNode is in safe mode")
	ErrUnreachable = errors.New("HDFS unreachable")
)

// exception returns class and text of an exception that HDFS sent; ok is false for any other
// error, such as a broken connection.
func exception(err error) (class, text string, ok bool) {
	var remote hdfs.Error
	if !errors.As(err, &remote) {
		return "", "", false
	}
	class = remote.Exception()
	return class[strings.LastIndexByte(class, '.')+1:], strings.TrimSpace(remote.Message()), true
}

// localError is an error of this host, which a retry cannot fix.
type localError struct{ error }

func (e localError) Unwrap() error { return e.error }

// answered reports whether the error is an answer of the NameNode or an error of this host: the
// connection is usable.
func answered(err error) bool {
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

// temporary reports whether a retry may succeed.
func temporary(err error) bool {
	class, text, ok := exception(err)
	if !ok {
		return !answered(err)
	}
	switch class {
	case "SafeModeException":
		return !strings.Contains(text, "turned on manually")
	case "RetriableException", "StandbyException", "NotReplicatedYetException", "RecoveryInProgressException":
		return true
	case "IOException": // no DataNode has registered since the NameNode started
		return strings.Contains(text, "There are 0 datanode(s) running")
	}
	return false
}

// explain returns an error of one line: the operation, the cause, and the remedy if there is
// one.
func (f *FS) explain(verb string, at location, err error) error {
	to := "cannot " + verb + " " + at.uri
	class, text, ok := exception(err)
	line, _, _ := strings.Cut(text, "\n") // the rest is a Java stack trace
	switch {
	case strings.HasSuffix(class, "QuotaExceededException"):
		return fmt.Errorf("%s: %w: %s: remove files there or ask the HDFS administrator for a larger quota", to,
			ErrQuota, line)
	case class == "SafeModeException":
		return fmt.Errorf("%s: %w: HDFS is read-only until its administrator runs hdfs dfsadmin -safemode leave", to,
			ErrSafeMode)
	case ok:
		return fmt.Errorf("%s: HDFS returned %s: %s; the NameNode's log says more", to, class, line)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w: HDFS denies access to user %s; its owner can permit it, "+
			"and HADOOP_USER_NAME names another user", to, fs.ErrPermission, f.config.User)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: HDFS did not answer in time (%w); check that the NameNode runs, then repeat it", to, err)
	case errors.Is(err, context.Canceled), answered(err):
		return fmt.Errorf("%s: %w", to, cause(err))
	}
	if node := at.dataNode(err); node != "" {
		return fmt.Errorf("%s: %w: no try within %s succeeded, the last at DataNode %s: %w; check that it runs (hdfs "+
			"dfsadmin -report), and that this host reaches it", to, ErrUnreachable, f.config.Bridge, node, cause(err))
	}
	return fmt.Errorf("%s: %w: no call succeeded at %s within %s: %w; check that the NameNode runs, and that "+
		"HADOOP_CONF_DIR is the configuration of this HDFS", to, ErrUnreachable, at.key(), f.config.Bridge, cause(err))
}

// dataNode returns the address of the DataNode to which the connection failed, "" if it was one to a NameNode.
func (l location) dataNode(err error) string {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Addr == nil {
		return ""
	}
	// NameNodes are known by name, the address is a number; a DataNode has other ports.
	_, port, _ := net.SplitHostPort(op.Addr.String())
	if slices.ContainsFunc(l.nameNodes, func(n string) bool { return strings.HasSuffix(n, ":"+port) }) {
		return ""
	}
	return op.Addr.String()
}

// cause returns the error without the path, which the message already has.
func cause(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}

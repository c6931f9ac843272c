// Package remedy says what to do about causes that the operating system and the network name.
package remedy

import (
	"regexp"
	"strings"
	"sync"
)

// moreOf begins the steps for limits that a process keeps from its start.
const moreOf = "raise the limit of "

// limits are the causes that are a limit of the host, wherever they are in a text.
var limits = sync.OnceValue(func() []limit {
	return []limit{
		{regexp.MustCompile(`(?i)no space left on device`), "free space, or file entries (df -i), on that disk"},
		{regexp.MustCompile(`(?i)disk quota exceeded`), "remove files there, or ask for a larger quota"},
		{regexp.MustCompile(`(?i)too many open files in system`), "raise that host's own limit of open files (sysctl fs.file-max), or end what has them open"},
		{regexp.MustCompile(`(?i)too many open files`), moreOf + "open files (ulimit -n)"},
		{regexp.MustCompile(`(?i)cannot allocate memory`), "free memory, or ask for more with --memory"},
		{regexp.MustCompile(`fork.*: resource temporarily unavailable|can't start new thread`), moreOf + "processes (ulimit -u), or end some"},
	}
})

type limit struct {
	cause *regexp.Regexp
	step  string
}

// causes are the other causes, at the end of a text. After some of them the same command may succeed.
var causes = [...]struct {
	cause, step string
	again       bool
}{
	{"read-only file system", "name a place that can be written", false},
	{"permission denied", "give this user access to it, or name another path", false},
	{"operation not permitted", "give this user the right to do that", false},
	{"resource temporarily unavailable", "end what uses it on that host, or raise its limit (ulimit -a)", false},
	{"input/output error", "check that disk: dmesg shows its errors", false},
	{"stale NFS file handle", "mount that file system again", false},
	{"no such file or directory", "check the path, and whether something has removed the file", false},
	{"file exists", "remove it, or choose another name", false},
	{"not a directory", "check the path", false},
	{"no locks available", "use a folder on a local disk", false},
	{"is a directory", "check the path", false},
	{"connection refused", "check the address, and whether the server runs", false},
	{"no such host", "check the name of the host", false},
	{"no route to host", "check the address and the network between the hosts", false},
	{"network is unreachable", "check the address and the network between the hosts", false},
	{"connection timed out", "check the address and the network between the hosts", false},
	{"i/o timeout", "check the address and the network between the hosts", false},
	{"connection reset by peer", otherSide, true},
	{"broken pipe", otherSide, true},
	{"EOF", "the other side closed the connection, or the file is cut short", true},
	{"context deadline exceeded", "it took too long", true},
	{"the connection to the cluster's driver broke", "", true},
	{"the cluster's driver did not answer in time", "", true},
}

const otherSide = "the log of the other side, or the network, shows why the connection ended"

// localTimeout matches the cause that Go gives when a process of this host did not answer on its unix socket.
var localTimeout = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bunix \S+: i/o timeout$`) })

// ForLimit returns what to do about a text that names a limit of a host; "" for any other text. on names the host, as in
// " on node07", or is "".
func ForLimit(text, on string) string {
	for _, l := range limits() {
		if l.cause.MatchString(text) {
			return l.step + on
		}
	}
	return ""
}

// KeptFromStart reports whether a process that runs cannot be given what ForLimit asks for: its limit is set at its start.
func KeptFromStart(step string) bool { return strings.HasPrefix(step, moreOf) }

// WithLimit returns a text with what to do if it names a limit of a host.
func WithLimit(text string) string {
	if step := ForLimit(text, ""); step != "" {
		return text + "; " + step
	}
	return text
}

// For returns what to do about an error's text that names a limit of a host, or ends with another known cause, before the
// command is repeated; "" for any other text. on is as for ForLimit.
func For(text, on string) string {
	if step := ForLimit(text, on); step != "" {
		return step
	}
	step, _ := atEnd(text)
	return step
}

// With returns an error's text with what to do, if the text ends with a known cause. A text that says what to do does not
// end so.
func With(text string) string {
	step, again := atEnd(text)
	if again {
		step = strings.TrimPrefix(step+": repeat the command", ": ")
	}
	if step == "" {
		return text
	}
	return text + "; " + step
}

// atEnd returns the step for the cause with which a text ends, "" if there is none; again says that the command may
// succeed when it is repeated.
func atEnd(text string) (step string, again bool) {
	if localTimeout().MatchString(text) {
		return "the other process on this host is busy or stopped", true
	}
	for _, l := range limits() {
		if at := l.cause.FindAllStringIndex(text, -1); at != nil && at[len(at)-1][1] == len(text) {
			return l.step, false
		}
	}
	for _, c := range causes {
		if strings.HasSuffix(text, c.cause) {
			return c.step, c.again
		}
	}
	return "", false
}

package errtext

import (
	"regexp"
	"strings"
	"sync"
)

// kind says when a cause counts.
type kind int

const (
	atEnd kind = iota // at the end of a text: one that says what to do does not end so
	again             // likewise, and the same command may succeed
	limit             // wherever it is in a text: it is a limit of the host
)

type cause struct {
	is   *regexp.Regexp
	step string
	kind kind
}

// moreOf begins the steps for limits that a process keeps from its start.
const moreOf = "raise the limit of "

// causes are compiled when they are needed: guards of processes, which start often, need none.
var causes = sync.OnceValue(func() []cause {
	of := func(pattern, step string, k kind) cause { return cause{regexp.MustCompile(pattern), step, k} }
	return []cause{
		of(`(?i)no space left on device`, "free space, or file entries (df -i), on that disk", limit),
		of(`(?i)disk quota exceeded`, "remove files there, or ask for a larger quota", limit),
		of(`(?i)too many open files in system`,
			"raise that host's own limit of open files (sysctl fs.file-max), or end what has them open", limit),
		of(`(?i)too many open files`, moreOf+"open files (ulimit -n)", limit),
		of(`(?i)cannot allocate memory`, "free memory", limit),
		of(`fork.*: resource temporarily unavailable|can't start new thread`, moreOf+
			"processes (ulimit -u), or end some", limit),
		of(`resource temporarily unavailable$`, "end what uses it on that host, or raise its limit (ulimit -a)", atEnd),
		of(`read-only file system$`, "name a place that can be written", atEnd),
		of(`permission denied$`, "give this user access to it, or name another path", atEnd),
		of(`operation not permitted$`, "give this user the right to do that", atEnd),
		of(`input/output error$`, "check that disk: dmesg shows its errors", atEnd),
		of(`stale NFS file handle$`, "mount that file system again", atEnd),
		of(`no such file or directory$`, "check the path, and whether something has removed the file", atEnd),
		of(`file exists$`, "remove it, or choose another name", atEnd),
		of(`(not|is) a directory$`, "check the path", atEnd),
		of(`no locks available$`, "use a folder on a local disk", atEnd),
		of(`connection refused$`, "check the address, and whether the server runs", atEnd),
		of(`no such host$`, "check the name of the host", atEnd),
		of(`\bunix \S+: i/o timeout$`, "the other process on this host is busy or stopped", again),
		of(`(no route to host|network is unreachable|connection timed out|i/o timeout)$`,
			"check the address and the network between the hosts", atEnd),
		of(`(connection reset by peer|broken pipe)$`,
			"the log of the other side, or the network, shows why the connection ended", again),
		of(`EOF$`, "the other side closed the connection, or the file is cut short", again),
		of(`context deadline exceeded$`, "it took too long", again),
		of(`the (connection to the cluster's driver broke|cluster's driver did not answer in time)$`, "", again),
	}
})

// RemedyForLimit returns what to do about a text that names a limit of a host; "" for any other text. on names the
// host, as in " on node07", or is "".
func RemedyForLimit(text, on string) string {
	for _, c := range causes() {
		if c.kind == limit && c.is.MatchString(text) {
			return c.step + on
		}
	}
	return ""
}

// KeptFromStart reports whether a process that runs cannot be given what RemedyForLimit asks for: its limit
// is set at its start.
func KeptFromStart(step string) bool { return strings.HasPrefix(step, moreOf) }

// Remedy returns what to do about an error's text that names a limit of a host, or ends with another cause, before the
// command is repeated; "" for any other text.
func Remedy(text string) string {
	for _, c := range causes() {
		if c.is.MatchString(text) {
			return c.step
		}
	}
	return ""
}

// WithRemedy returns an error's text with what to do, if the text ends with a known cause.
func WithRemedy(text string) string {
	for _, c := range causes() {
		all := c.is.FindAllStringIndex(text, -1)
		switch {
		case all == nil || all[len(all)-1][1] < len(text):
		case c.kind == again:
			return text + "; " + strings.TrimPrefix(c.step+": repeat the command", ": ")
		default:
			return text + "; " + c.step
		}
	}
	return text
}

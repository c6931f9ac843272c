package result

import (
	"regexp"
	"strings"
)

// steps are what to do about a cause that the operating system or the network names.
var steps = [...]struct{ cause, step string }{
	{"no space left on device", "free space, or file entries (df -i), on that disk"},
	{"disk quota exceeded", "remove files there, or ask for a larger quota"},
	{"read-only file system", "name a place that can be written"},
	{"permission denied", "give this user access to it, or name another path"},
	{"operation not permitted", "give this user the right to do that"},
	{"too many open files", "raise the limit of open files: ulimit -n"},
	{"cannot allocate memory", "free memory on that host"},
	{"resource temporarily unavailable", "raise the limit of processes, ulimit -u, or end some"},
	{"input/output error", "check that disk: dmesg shows its errors"},
	{"stale NFS file handle", "mount that file system again"},
	{"no such file or directory", "check the path, and whether something has removed the file"},
	{"file exists", "remove it, or choose another name"},
	{"not a directory", "check the path"},
	{"no locks available", "use a folder on a local disk"},
	{"is a directory", "check the path"},
	{"connection refused", "check the address, and whether the server runs"},
	{"no such host", "check the name of the host"},
	{"no route to host", "check the address and the network between the hosts"},
	{"network is unreachable", "check the address and the network between the hosts"},
	{"connection timed out", "check the address and the network between the hosts"},
	{"i/o timeout", "check the address and the network between the hosts"},
	{"connection reset by peer", "repeat the command; the log of the other side says why it closed the connection"},
	{"broken pipe", "repeat the command; the log of the other side says why it closed the connection"},
	{"EOF", "the other side closed the connection or the file is cut short: repeat the command"},
	{"context deadline exceeded", "it took too long: repeat the command"},
	{"the connection to the cluster's driver broke", "repeat the command"},
	{"the cluster's driver did not answer in time", "repeat the command"},
}

// localTimeout matches the cause that Go gives when a process of this host did not answer on its unix socket.
var localTimeout = regexp.MustCompile(`\bunix \S+: i/o timeout$`)

// WithStep returns an error's text with what to do, if the text ends with a cause that the operating system or the network
// names. A text that says what to do does not end so.
func WithStep(text string) string {
	if localTimeout.MatchString(text) {
		return text + "; the other process on this host is busy or stopped: repeat the command"
	}
	for _, s := range steps {
		if strings.HasSuffix(text, s.cause) {
			return text + "; " + s.step
		}
	}
	return text
}

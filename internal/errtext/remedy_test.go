package errtext

import (
	"testing"
)

// TestRemedyForLimit: a limit is found wherever it is in a text; each has one step.
func TestRemedyForLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"OSError: [Errno 28] No space left on device: '/x'": "free space, or file entries (df -i), " +
			"on that disk on node07",
		"open /x: too many open files": "raise the limit of open files (ulimit -n) " +
			"on node07",
		"make a socket: too many open files in system": "raise that host's own limit of open files " +
			"(sysctl fs.file-max), or end what has them open on node07",
		"start the agent: fork/exec /x/agent: resource temporarily unavailable": "raise the limit of processes (ulimit " +
			"-u), or end some on node07",
		"RuntimeError: can't start new thread": "raise the limit of processes (ulimit -u), " +
			"or end some on node07",
		"BlockingIOError: [Errno 11] Resource temporarily unavailable": "",
		"open /x: permission denied":                                   "",
	} {
		if got := RemedyForLimit(text, " on node07"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestRemedy: what to do before a command is repeated does not ask to repeat it.
func TestRemedy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"write /x: no space left on device; see /y":         "free space, or file entries (df -i), on that disk",
		"dial tcp 10.0.0.1:80: connect: connection refused": "check the address, and whether the server runs",
		"read tcp: connection reset by peer": "the log of the other side, or the network, " +
			"shows why the connection ended",
		"bad": "",
		"dial tcp: connect: connection refused; look into its log": "",
		"the connection to the cluster's driver broke":             "",
	} {
		if got := Remedy(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got, want := WithRemedy("write /a: disk quota exceeded\nwrite /b: disk quota exceeded"), "write /a: "+
		"disk quota exceeded\nwrite /b: disk quota exceeded; remove files there, or ask for a larger quota"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := WithRemedy("x: the connection to the cluster's driver broke"),
		"x: the connection to the cluster's driver broke; repeat the command"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

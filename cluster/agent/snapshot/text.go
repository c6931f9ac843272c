package snapshot

import (
	"fmt"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Text returns a snapshot as lines for the task's log. They have the form of Python's tracebacks, but with the most
// recent call first, as faulthandler writes them.
func Text(s *clusterpb.Snapshot) []string {
	var lines []string
	if s.GetError() != "" {
		lines = append(lines, "tfcluster: "+s.GetError())
	}
	for _, t := range s.GetThreads() {
		lines = append(lines, fmt.Sprintf("%s (most recent call first):", title(t)))
		for _, f := range t.GetFrames() {
			if f.GetFile() == "" {
				lines = append(lines, "  "+f.GetFunction())
				continue
			}
			lines = append(lines, fmt.Sprintf("  File %q, line %d in %s", f.GetFile(), f.GetLine(), f.GetFunction()))
			if f.GetCode() != "" {
				lines = append(lines, "    "+f.GetCode())
			}
		}
		if t.GetFramesLeftOut() > 0 {
			lines = append(lines, "  ...")
		}
	}
	for _, c := range s.GetChildren() {
		lines = append(lines, fmt.Sprintf("Process %d, state %s: %s", c.GetPid(), c.GetState(), c.GetCommand()))
	}
	return lines
}

// title returns the name and the state of a thread: `Thread "MainThread", state S in futex_wait_queue`.
func title(t *clusterpb.ThreadStack) string {
	text := "Thread"
	switch {
	case t.GetName() != "":
		text += fmt.Sprintf(" %q", t.GetName())
	case t.GetMain():
		text += ` "MainThread"`
	default:
		text += fmt.Sprintf(" 0x%x", t.GetId())
	}
	if t.GetState() != "" {
		text += ", state " + t.GetState()
	}
	if t.GetWaitChannel() != "" {
		text += " in " + t.GetWaitChannel()
	}
	return text
}

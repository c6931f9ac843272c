package kernel

import (
	"bytes"
	"encoding/json"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// busyRequests holds the requests that the child has begun and not ended, by message ID. The
// value is true for requests of a subshell. A single bool is not enough: the child serves the
// control channel and subshells concurrently with the main shell, and publishes busy and idle
// for each request.
//
// An idle may be lost in a flood of output. Its request then stays here until a cell begins
// (see begin); a subshell's, until the child ends. Meanwhile an interrupt may be sent to an
// idle child, which ipykernel ignores unless an earlier interrupt arrived while it changed its
// signal handler.
type busyRequests map[string]bool

// note records a status of the child for a request.
func (b busyRequests) note(frames [][]byte, request string) (idle bool) {
	content := frames[len(frames)-1]
	idle = bytes.Contains(content, []byte(`"idle"`))
	switch {
	case idle:
		delete(b, request)
	case bytes.Contains(content, []byte(`"busy"`)):
		b[request] = onSubshell(frames)
	}
	return idle
}

// begin records that a cell begins on the main shell. The child serves that in order, so all
// earlier requests on it have ended. Requests on control are removed too: an interrupt does not
// reach their thread.
func (b busyRequests) begin(cell string) {
	for request, subshell := range b {
		if !subshell && request != cell {
			delete(b, request)
		}
	}
}

// onSubshell reports whether a message answers a request to a subshell (JEP 91).
func onSubshell(frames [][]byte) bool {
	m, err := wire.Split(frames)
	if err != nil || !bytes.Contains(m.Parent(), []byte(`"subshell_id"`)) { // cheaper than to decode it
		return false
	}
	var parent wire.Header
	return json.Unmarshal(m.Parent(), &parent) == nil && parent.Subshell != ""
}

package kernel

import (
	"bytes"
	"encoding/json"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// busyRequests holds the requests that the child has begun and not ended, by message id. The value
// is whether the request is a subshell's. A single bool is not enough: the child serves the control
// channel and subshells beside the main shell, and publishes busy and idle for each request.
//
// An idle may be lost in a flood of output. Its request then stays here until a cell begins (see
// begin), a subshell's until the child ends. Meanwhile an interrupt is sent to a child that may be
// idle, which ipykernel ignores unless an earlier interrupt hit the change of its signal handler.
type busyRequests map[string]bool

// note takes a status of the child for a request.
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

// begin takes that a cell begins on the main shell. The child serves that in order, so whatever it
// began there before is over. Requests on control go too: an interrupt does not reach their thread.
func (b busyRequests) begin(cell string) {
	for request, subshell := range b {
		if !subshell && request != cell {
			delete(b, request)
		}
	}
}

// onSubshell is whether a message answers a request to a subshell (JEP 91).
func onSubshell(frames [][]byte) bool {
	m, err := wire.Decode(frames)
	if err != nil {
		return false
	}
	var parent wire.Header
	return json.Unmarshal(m.Parent(), &parent) == nil && parent.Subshell != ""
}

package kernel

import (
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/kernel/wire"
)

// Ensure the child counts as busy until each request that it began has ended, and that a
// request whose idle was lost is removed when a cell begins, while a subshell's stays.
func TestBusyRequests(t *testing.T) {
	t.Parallel()
	s := wire.NewSigner("key")
	for _, tt := range []struct {
		name  string
		steps []string // STATE REQUEST
		want  int
	}{
		{"nothing", nil, 0},
		{"ended", []string{"busy comm", "idle comm"}, 0},
		{"control request within a callback", []string{"busy comm", "busy info", "idle info"}, 1},
		{"control request around the end of a callback", []string{"busy comm", "busy info", "idle comm", "idle info"}, 0},
		{"idle without its busy", []string{"idle comm"}, 0},
		{"starting", []string{"starting comm"}, 0},
		{"lost idle, then a cell", []string{"busy comm", "cell 1", "idle 1"}, 0},
		{"subshell and a cell", []string{"busy sub", "cell 1", "idle 1"}, 1},
		{"subshell that ended", []string{"busy sub", "cell 1", "idle 1", "idle sub"}, 0},
	} {
		b := busyRequests{}
		for _, step := range tt.steps {
			state, id, _ := strings.Cut(step, " ")
			parent := `{"msg_id":"` + id + `","msg_type":"x","subshell_id":null}`
			if id == "sub" {
				parent = `{"msg_id":"sub","msg_type":"x","subshell_id":"1"}`
			}
			begins := state == "cell"
			if begins {
				state = "busy"
			}
			b.note(s.Make(nil, "status", []byte(parent), wire.Status{ExecutionState: state}), id)
			if begins {
				b.begin(id)
			}
		}
		if len(b) != tt.want {
			t.Errorf("%s: %v are busy, want %d", tt.name, b, tt.want)
		}
	}
}

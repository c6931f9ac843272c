package runfiles

import (
	"fmt"
	"strings"
	"testing"
)

// TestCheckpointsDuringTransfer: while files are sent, the program saves the next checkpoint and removes an old one.
// The driver's state file never names a checkpoint that is not there, and checkpoints go on arriving.
func TestCheckpointsDuringTransfer(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	e := b.executor("0")
	n := 1
	e.save(n)
	for range 10 {
		before, saved := n, false
		err := e.Sync(e.ctx, false, func() {
			if !saved {
				saved = true
				n++
				e.save(n)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		state := read(t, b.disk.dir, "run-001/checkpoints/checkpoint")
		if want := fmt.Sprintf("\"ckpt-%d\"", before); !strings.Contains(state, want) {
			t.Errorf("after a transfer the driver's newest checkpoint is %q, want %s", state, want)
		}
	}
	e.round(true)
	state := read(t, b.disk.dir, "run-001/checkpoints/checkpoint")
	if !strings.Contains(state, fmt.Sprintf("ckpt-%d", n)) {
		t.Errorf("at the end the driver has %q", state)
	}
}

// TestStateFilesOfAMoment: what a program leaves for a moment while it saves, or for ever when it is killed then.
func TestStateFilesOfAMoment(t *testing.T) {
	t.Parallel()
	const data, index = "checkpoints/ckpt-1.data-00000-of-00001", "checkpoints/ckpt-1.index"
	const state = "checkpoints/checkpoint"
	whole := []string{"run-001/" + state, "run-001/" + data, "run-001/" + index}
	for name, tt := range map[string]struct {
		sent  bool // the checkpoint is at the driver before
		moves func(e *executor)
		want  []string
	}{
		"removed before the state file is updated": {true, func(e *executor) {
			e.remove(data)
			e.remove(index)
			e.write(state, "model_checkpoint_path: \"ckpt-2\"\n")
		}, whole},
		"half removed before it was sent": {false, func(e *executor) { e.remove(index) }, nil},
		"removed before it was sent":      {false, func(e *executor) { e.remove(data); e.remove(index) }, nil},
		"rewritten in place": {true, func(e *executor) {
			e.remove(data)
			e.remove(index)
			e.write(state, "")
		}, whole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t)
			e := b.executor("0")
			e.save(1)
			if tt.sent {
				e.round(false)
			}
			tt.moves(e)
			e.round(false)
			b.want(tt.want...)
		})
	}
}

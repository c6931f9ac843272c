package render

import (
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// TestNoteText: the name of a file that a program wrote cannot control the terminal, nor add a line.
func TestNoteText(t *testing.T) {
	t.Parallel()
	n := &clusterpb.Note{Warning: true, Text: "could not send a\x1b[2J\nfake"}
	if got, want := NoteText(n), "warning: could not send a\uFFFD[2J fake"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

package cluster

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// notesKept bounds what a cluster that lives for weeks keeps to show.
const notesKept = 500

// notes are what was said beside tasks' lines, the newest of them.
type notes struct {
	kept []*clusterpb.Note
	gone int // older ones
}

func (n *notes) add(note *clusterpb.Note) {
	n.kept = append(n.kept, note)
	if over := len(n.kept) - notesKept; over > 0 {
		n.kept = slices.Delete(n.kept, 0, over)
		n.gone += over
	}
}

// said is how many there have been.
func (n *notes) said() int { return n.gone + len(n.kept) }

// since are those said after the first told of them, as far as they are kept.
func (n *notes) since(told int) []*clusterpb.Note {
	return slices.Clone(n.kept[min(max(0, told-n.gone), len(n.kept)):])
}

func (n *notes) has(text string) bool {
	return slices.ContainsFunc(n.kept, func(o *clusterpb.Note) bool { return o.GetText() == text })
}

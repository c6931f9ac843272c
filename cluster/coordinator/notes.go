package coordinator

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
func (n *notes) since(told int) []*clusterpb.Note { return n.between(told, n.said()) }

// between are the notes after the first told of them up to the one that is number end.
func (n *notes) between(told, end int) []*clusterpb.Note {
	from, to := min(max(0, told-n.gone), len(n.kept)), min(max(0, end-n.gone), len(n.kept))
	return slices.Clone(n.kept[from:max(from, to)])
}

func (n *notes) has(text string) bool {
	return slices.ContainsFunc(n.kept, func(o *clusterpb.Note) bool { return o.GetText() == text })
}

package coordinator

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// notesKept is how many notes are kept; older ones are dropped.
const notesKept = 500

// notes are the cluster's newest notes, messages to users that are not lines of tasks.
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

// total returns how many notes there have been.
func (n *notes) total() int { return n.gone + len(n.kept) }

// since returns the notes after the first shown ones, as far as they are kept.
func (n *notes) since(told int) []*clusterpb.Note { return n.between(told, n.total()) }

// between returns the notes after the first shown ones up to number end.
func (n *notes) between(told, end int) []*clusterpb.Note {
	from, to := min(max(0, told-n.gone), len(n.kept)), min(max(0, end-n.gone), len(n.kept))
	return slices.Clone(n.kept[from:max(from, to)])
}

func (n *notes) has(text string) bool {
	return slices.ContainsFunc(n.kept, func(o *clusterpb.Note) bool { return o.GetText() == text })
}

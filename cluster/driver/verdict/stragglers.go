package verdict

import (
	"slices"

	"github.com/tfcluster/tfcluster/cluster"
)

// A straggler's step takes ownFactor times as long as the median outside of collective operations, and ownLeast seconds
// longer.
const (
	ownFactor = 1.5
	ownLeast  = 0.01
)

// Own is a task's time of a step outside of collective operations. Tasks that train in step wait for the slowest one:
// the whole step takes the same time for all of them, and only this part shows which one it is.
type Own struct {
	Seconds float64 // 0: unknown
	// Slowdown is Seconds divided by the median of the tasks, if the task is a straggler; 0 otherwise.
	Slowdown float64
}

// Own returns this time of each task that reports it.
func (m *Monitor) Own() map[cluster.TaskID]Own {
	all := map[cluster.TaskID]Own{}
	var sorted []float64
	for id, t := range m.tracks {
		if own := t.own.median().Seconds(); own > 0 {
			all[id] = Own{Seconds: own}
			sorted = append(sorted, own)
		}
	}
	if len(sorted) < 2 {
		return all
	}
	slices.Sort(sorted)
	median := sorted[(len(sorted)-1)/2] // of two tasks, the faster one
	for id, o := range all {
		if o.Seconds > ownFactor*median && o.Seconds-median > ownLeast {
			o.Slowdown = o.Seconds / max(median, 1e-6)
			all[id] = o
		}
	}
	return all
}

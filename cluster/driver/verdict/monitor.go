package verdict

import (
	"slices"
	"strings"
	"time"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Limits of the time without progress before the tasks are looked at.
const (
	stepLimit    = 10 * time.Second // within training steps
	outsideLimit = 60 * time.Second // outside of them
	factor       = 3                // times the median step, or the longest time before in the same phase
)

// How long after a look the next one follows, while there is no progress.
const (
	againLeast = 10 * time.Second
	againMost  = time.Minute
)

// computingPhase is a time without progress in which the tasks that hold the others up compute.
const computingPhase Phase = "computing"

// Monitor is the automatic check of a run: it knows when the run has made no progress for too long, and whether a
// verdict is shown then. Its zero value is that of a run that has not begun. It is not safe for concurrent use.
type Monitor struct {
	tracks map[cluster.TaskID]*track
	last   time.Time               // of the last progress of any task; zero: none yet
	count  map[string]int          // tracks by phase, and by counter with a prefix
	gaps   map[Phase]time.Duration // the longest time without progress before, by phase
	steps  medians
	seen   Phase     // what the stacks showed in the last look; NoPhase again after progress
	again  time.Time // the next look; zero: when the limit has passed
	line   string
}

// track is what the monitor knows about a task.
type track struct {
	activity *clusterpb.Activity
	stepped  time.Time // when its last step was reported; zero: none
	own      medians   // time of a step outside of collective operations
}

// Report records a task's activity. It returns whether the line has been removed.
func (m *Monitor) Report(id cluster.TaskID, a *clusterpb.Activity, now time.Time) (removed bool) {
	if id.Role != cluster.Chief && id.Role != cluster.Worker {
		return false
	}
	t := m.tracks[id]
	if t == nil {
		if m.tracks == nil {
			m.tracks, m.count, m.gaps, m.steps.size = map[cluster.TaskID]*track{}, map[string]int{},
				map[Phase]time.Duration{}, allSteps
		}
		t = &track{activity: &clusterpb.Activity{}, own: medians{size: ownSteps}}
		m.tracks[id] = t
		m.counted(t.activity, 1)
	}
	old := t.activity
	if a.GetMarks() == old.GetMarks() {
		return false
	}
	m.ended(now)
	m.last, m.seen, m.again = now, NoPhase, time.Time{}
	removed, m.line = m.line != "", ""
	steps := a.GetStep() - old.GetStep()
	if same := a.GetCounter() == old.GetCounter(); a.GetCounter() != "" && (!same || steps != 0) {
		t.stepped = now
		if same && steps > 0 && Phase(old.GetPhase()) == Steps && Phase(a.GetPhase()) == Steps {
			m.steps.add((a.GetSeconds() - old.GetSeconds()) / float64(steps))
			if a.GetMeasured() && old.GetMeasured() {
				t.own.add((a.GetOwnSeconds() - old.GetOwnSeconds()) / float64(steps))
			}
		}
	}
	t.activity = a
	m.counted(old, -1)
	m.counted(a, 1)
	return removed
}

// counted adds by, 1 or -1, to the counts of a task's phase and counter. With thousands of tasks a report must not look
// at all of them.
func (m *Monitor) counted(a *clusterpb.Activity, by int) {
	for _, key := range []string{phaseKey + a.GetPhase(), counterKey + a.GetCounter()} {
		if m.count[key] += by; m.count[key] == 0 {
			delete(m.count, key)
		}
	}
}

// Prefixes of the keys of counts.
const (
	phaseKey   = "phase "
	counterKey = "counter "
)

// ended records how long the time without progress was that ends now.
func (m *Monitor) ended(now time.Time) {
	if m.last.IsZero() {
		return
	}
	gap := now.Sub(m.last)
	for _, p := range m.phases() {
		m.gaps[p] = max(m.gaps[p], gap)
	}
}

// phases returns the phases that the tasks are in, and the one that their stacks showed.
func (m *Monitor) phases() []Phase {
	var all []Phase
	if m.seen != NoPhase {
		all = append(all, m.seen)
	}
	for key := range m.count {
		if p, ok := strings.CutPrefix(key, phaseKey); ok {
			all = append(all, Phase(p))
		}
	}
	return all
}

// Forget removes a task that has ended or is started again. It returns whether the line has been removed.
func (m *Monitor) Forget(id cluster.TaskID) (removed bool) {
	t := m.tracks[id]
	if t == nil {
		return false
	}
	m.counted(t.activity, -1)
	delete(m.tracks, id)
	removed, m.line = m.line != "", ""
	return removed
}

// limit returns the longest time without progress that is normal now.
func (m *Monitor) limit() time.Duration {
	limit := time.Duration(0)
	for _, p := range m.phases() {
		limit = max(limit, m.limitOf(p))
	}
	return limit
}

func (m *Monitor) limitOf(p Phase) time.Duration {
	least := outsideLimit
	switch {
	case p == Steps, p == computingPhase && m.reportsSteps() && m.inSteps():
		least = max(stepLimit, factor*m.steps.median())
	case p == computingPhase && !m.inSteps():
		least = factor * outsideLimit // a framework may compile for minutes, on one host longer than on another
	}
	if p == Steps { // a stall that has ended does not make the next one normal
		return least
	}
	return max(least, factor*m.gaps[p])
}

// inSteps returns whether every task is within training steps.
func (m *Monitor) inSteps() bool { return m.count[phaseKey+string(Steps)] == len(m.tracks) }

// reportsSteps returns whether the programs report steps, rather than making collective operations only.
func (m *Monitor) reportsSteps() bool {
	return m.count[counterKey+"batches"]+m.count[counterKey+"ctx"] > 0
}

// Due returns when the tasks must be looked at if there is no progress until then. It returns false while the check is
// off: no task that is running has reported a step or a phase.
func (m *Monitor) Due() (time.Time, bool) {
	if len(m.tracks) == 0 || m.last.IsZero() {
		return time.Time{}, false
	}
	due := m.last.Add(m.limit())
	if m.again.After(due) {
		due = m.again
	}
	return due, true
}

// Judged records a verdict about the tasks as they were at a time, and returns whether the line has changed. The caller
// has made sure that there was no progress since the snapshots.
func (m *Monitor) Judged(v *Verdict, now time.Time) (changed bool) {
	silence := now.Sub(m.last)
	m.again = now.Add(min(max(silence/2, againLeast), againMost))
	if m.seen = v.Phase; m.seen == NoPhase && v.Computing {
		m.seen = computingPhase
	}
	line := ""
	if silence >= m.limit() && m.shows(v) {
		line = v.Text
	}
	changed, m.line = line != m.line, line
	if due := m.last.Add(m.limit()); due.After(now) {
		m.again = time.Time{} // the limit of what the stacks show has not passed
	}
	return changed
}

// shows returns whether a verdict is news. A task that computes while nobody waits for it is none, nor is one that
// waits for something after training.
func (m *Monitor) shows(v *Verdict) bool {
	after := m.count[phaseKey+string(AfterTraining)] == len(m.tracks)
	return v.Held && len(v.Culprits) > 0 && (!v.Guess || v.Stuck) || v.Stuck && !after
}

// Line returns the line of the last verdict; "" if the run makes progress, or nothing is wrong.
func (m *Monitor) Line() string { return m.line }

// Since returns the time of the last progress of any task; zero if there was none.
func (m *Monitor) Since() time.Time { return m.last }

// Run returns what the monitor knows about the run, for Judge.
func (m *Monitor) Run(id int32, now time.Time) Run {
	r := Run{ID: id, Silence: -1, Median: m.steps.median()}
	if len(m.tracks) > 0 && !m.last.IsZero() {
		r.Silence = now.Sub(m.last)
	}
	return r
}

// Step returns a task's last step and the time since it ended; -1 if no step is known.
func (m *Monitor) Step(id cluster.TaskID, now time.Time) (step int64, age time.Duration) {
	t := m.tracks[id]
	if t == nil || t.stepped.IsZero() {
		return 0, -1
	}
	return t.activity.GetStep(), now.Sub(t.stepped)
}

// medians keeps the last of some durations.
type medians struct {
	size int       // how many are kept
	kept []float64 // seconds; a ring
	n    int       // how many there were
}

// How many durations of steps are kept, of all tasks and of each.
const (
	allSteps = 101
	ownSteps = 15
)

func (r *medians) add(seconds float64) {
	switch {
	case !(seconds >= 0 && seconds < 1e6):
		return
	case len(r.kept) < r.size:
		r.kept = append(r.kept, seconds)
	default:
		r.kept[r.n%r.size] = seconds
	}
	r.n++
}

// median returns their median; 0: there was none.
func (r *medians) median() time.Duration {
	if len(r.kept) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(r.kept))
	return time.Duration(sorted[len(sorted)/2] * float64(time.Second))
}

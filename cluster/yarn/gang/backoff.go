package gang

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// YARN gives containers one by one. Two reservations that each hold half of what there
// is wait for each other, until their timeouts. So one that is half filled gives back
// what it holds, waits, and asks again.
//
// That is right only where others hold and wait too. In a queue that is full of jobs
// that end, who holds its part gathers the rest as they end, and who gives it back has
// it taken by the next small job, for ever. YARN does not tell which application holds a
// part of what it needs; ours do, by their progress: the part of their executors that
// they have. As long as none of ours is half filled beside this one, nothing is given
// back, however long nothing comes. Other kinds of application are not known to be
// gangs, and are waited for; so are those that YARN's access control hides.
//
// Who came first goes first, by the number that the ResourceManager gave it: of those that
// are half filled, the youngest gives way after one measure of patience, an older one only
// after two more for each younger one, so that what they give back comes first.
// It does in the end: what a younger one gives back may be on nodes, or in a queue, where
// it is of no use to the older. Each turn takes twice as long as the one before, and is
// random, so that no two go on in step. Where a turn was in vain, since those for whom it
// was are as full as before, they wait for something else, such as their queue's limit,
// and much patience is had with them. The application stays the same meanwhile, and keeps
// its place in a queue that serves who came first.
//
// Once every executor has had a container, nothing is given back any more: the cluster
// may have been ready, and what was ready is held. An executor that is replaced later is
// waited for, whoever waits beside it.

// Backoff is how a reservation has given way so far.
type Backoff struct {
	Whole bool               `json:"whole,omitempty"` // every executor had a container: nothing is given back any more
	Again bool               `json:"again,omitempty"` // an earlier application was whole: a run may go on without its sidecars
	Given int                `json:"given,omitempty"` // how often it gave back what it had
	Until time.Time          `json:"until,omitzero"`  // nothing is asked for before; zero: something is
	Whom  string             `json:"whom,omitempty"`  // it gave way to last
	Full  map[string]float32 `json:"full,omitempty"`  // how full those were that it gave way to last
}

// Detector is what the goroutine beat sees of reservations that wait for one another.
type Detector struct {
	unit        time.Duration // of patience
	vain        time.Duration // patience with those that it gave way to in vain
	held        int           // containers
	came        time.Time     // the last of them; zero: there is none
	since       time.Time     // when it began that nothing came though others are half filled; zero: it is not so
	jitter      float64       // from 1 to 1.5, drawn with since
	Competitors Competitors
	looked      time.Time // when rivals were asked for
	moved       time.Time // when rivals last became more or less full, of a rest that goes on; zero: none does
}

// Competitors are the other reservations that hold a part of what they need.
type Competitors struct {
	All, Younger int
	Oldest       string             // the oldest of them, for people
	Full         map[string]float32 // how full they are
}

// How much patience there is. Of a reservation of ten minutes the first turn takes 15 to
// 22 seconds, and twice as much more for each younger rival.
const (
	leastUnit      = 3 * time.Second // heartbeats of nodes and masters, a second each, bring what is given back
	mostUnit       = 15 * time.Second
	unitsOfReserve = 40 // in the time that a reservation has
	vainOfReserve  = 4
	mostDoubled    = 3 // turns after which they grow no longer
	mostRivals     = 3 // that make an older one wait longer
	lookAgain      = 5 * time.Second
	fillPause      = time.Second // between two containers of a reservation that is being filled
)

// defaultReserve is a reservation's time where the request names none.
const defaultReserve = 10 * time.Minute

// NewDetector is for a reservation that has as much time as limit; 0: the default.
func NewDetector(limit time.Duration) Detector {
	limit = cmp.Or(limit, defaultReserve)
	return Detector{unit: min(max(limit/unitsOfReserve, leastUnit), mostUnit), vain: limit / vainOfReserve}
}

// Reset ends what was seen: nothing is held, or nothing is missing.
func (s *Detector) Reset() { s.held, s.came, s.since = 0, time.Time{}, time.Time{} }

// waitLimit is how long nothing may come.
func (s *Detector) waitLimit(t Backoff) time.Duration {
	times := float64(int(1)<<min(t.Given, mostDoubled)) * float64(1+2*min(s.Competitors.Younger, mostRivals))
	p := time.Duration(float64(s.unit) * times * s.jitter)
	for id, full := range s.Competitors.Full {
		if t.Full[id] != full {
			return p // to one of them it was of use, or may be
		}
	}
	return max(p, s.vain)
}

// Delay is how long nothing is asked for after a turn: others gather what was given back.
func (s *Detector) Delay(turn int) time.Duration {
	return time.Duration(float64(s.unit) * float64(int(1)<<min(turn, mostDoubled)) * (1 + rand.Float64()) / 2)
}

// Resumes is whether to ask again, once a rest's time is over: not while an older one is
// half filled and something moves, for a while. Among many that wait for one another those
// that gave way would else take what the next one gives back, and nobody is ever whole.
func (s *Detector) Resumes(now time.Time, t Backoff, find func() (Competitors, error)) bool {
	if now.Sub(s.looked) > min(lookAgain, s.unit/2) {
		r, err := find()
		if s.looked = now; err != nil {
			return true
		}
		if !maps.Equal(r.Full, s.Competitors.Full) {
			s.moved = now
		}
		s.Competitors = r
	}
	if s.moved.IsZero() {
		s.moved = now
	}
	most := s.unit << min(t.Given, mostDoubled)
	older := s.Competitors.All - s.Competitors.Younger
	if older > 0 && now.Sub(s.moved) < 2*most && now.Sub(t.Until) < 4*most {
		return false
	}
	s.moved = time.Time{}
	return true
}

// Watch says how much patience is left at a moment, for one that holds some containers
// and lacks others; none while nobody else is half filled. find looks for those others.
func (s *Detector) Watch(now time.Time, held int, t Backoff, find func() (Competitors, error)) (left time.Duration, stuck bool) {
	look := func() {
		r, err := find()
		if s.looked = now; err != nil {
			return // what was seen last has to do
		}
		if r.Younger < s.Competitors.Younger { // what it gave back may be on its way here
			s.since = time.Time{}
		}
		s.Competitors = r
	}
	if s.came.IsZero() || held > s.held {
		s.came, s.since = now, time.Time{}
	}
	s.held = held
	if now.Sub(s.came) < fillPause {
		return 0, false
	}
	if now.Sub(s.looked) > min(lookAgain, s.unit/2) {
		look()
	}
	if s.Competitors.All == 0 {
		s.since = time.Time{}
		return 0, false
	}
	if s.since.IsZero() {
		s.since, s.jitter = now, 1+rand.Float64()/2
	}
	if now.Sub(s.since) >= s.waitLimit(t) && s.looked.Before(now) {
		look() // they may be whole by now
		if s.since.IsZero() {
			s.since = now
		}
	}
	return max(0, s.waitLimit(t)-now.Sub(s.since)), s.Competitors.All > 0
}

// FindCompetitors are among applications of ours those that are half filled.
func FindCompetitors(me *yarnpb.ApplicationId, all []*yarnpb.ApplicationReport) Competitors {
	found := Competitors{Full: map[string]float32{}}
	var oldest *yarnpb.ApplicationId
	for _, r := range all {
		id := r.GetApplicationId()
		order := inOrder(id, me)
		if order == 0 || r.GetProgress() <= 0 || r.GetProgress() >= 1 {
			continue
		}
		if found.All++; order > 0 {
			found.Younger++
		}
		found.Full[protocol.ApplicationName(id)] = r.GetProgress()
		if oldest == nil || inOrder(id, oldest) < 0 {
			oldest = id
			began := "before"
			if order > 0 {
				began = "after"
			}
			found.Oldest = fmt.Sprintf("%s of %s, which began %s it", protocol.ApplicationName(id), r.GetUser(), began)
		}
	}
	return found
}

// inOrder compares applications by when their ResourceManager numbered them.
func inOrder(a, b *yarnpb.ApplicationId) int {
	return cmp.Or(cmp.Compare(a.GetClusterTimestamp(), b.GetClusterTimestamp()), cmp.Compare(a.GetId(), b.GetId()))
}

// About is a while for people, in words that do not change with each heartbeat.
func About(d time.Duration) string {
	const step = 5 * time.Second
	return fmt.Sprintf("about %.0f s", ((d + step - 1) / step * step).Seconds())
}

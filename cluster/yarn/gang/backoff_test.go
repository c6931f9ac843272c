package gang

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// TestWatch: only who is half filled beside others loses patience, the youngest first, and
// whatever comes begins it anew.
func TestWatch(t *testing.T) {
	t.Parallel()
	type look struct {
		after time.Duration // since the one before
		held  int
		seen  Competitors
		err   error
		stuck bool
		done  bool // no patience is left
	}
	const s = time.Second
	at := func(younger int, full float32) Competitors {
		return Competitors{All: 1, Younger: younger, Full: map[string]float32{"application_5_0006": full}}
	}
	older, younger := at(0, 0.5), at(1, 0.5)
	for _, tt := range []struct {
		name  string
		turns Backoff
		looks []look
	}{
		{"nobody else is half filled", Backoff{}, []look{{0, 2, Competitors{}, nil, false, false}, {2 * s, 2, Competitors{}, nil, false, false}, {time.Hour, 2, Competitors{}, nil, false, false}}},
		{"it is being filled", Backoff{}, []look{{0, 1, older, nil, false, false}, {s / 2, 2, older, nil, false, false}, {s * 9 / 10, 2, older, nil, false, false}, {s / 10, 2, older, nil, true, false}}},
		{"the youngest of two", Backoff{}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {9 * s, 2, older, nil, true, false}, {6 * s, 2, older, nil, true, true}}},
		{"the older of two", Backoff{}, []look{{0, 2, younger, nil, false, false}, {2 * s, 2, younger, nil, true, false}, {29 * s, 2, younger, nil, true, false}, {16 * s, 2, younger, nil, true, true}}},
		{"its third turn", Backoff{Given: 2}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {39 * s, 2, older, nil, true, false}, {21 * s, 2, older, nil, true, true}}},
		{"its hundredth turn", Backoff{Given: 100}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {120 * s, 2, older, nil, true, true}}},
		{"something came", Backoff{}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {9 * s, 3, older, nil, false, false}, {2 * s, 3, older, nil, true, false}, {9 * s, 3, older, nil, true, false}}},
		{"the other was alone before", Backoff{}, []look{{0, 2, Competitors{}, nil, false, false}, {2 * s, 2, Competitors{}, nil, false, false}, {time.Hour, 2, older, nil, true, false}, {9 * s, 2, older, nil, true, false}}},
		{"the other is whole at last", Backoff{}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {time.Minute, 2, Competitors{}, nil, false, false}}},
		{"a younger one has just given way", Backoff{}, []look{{0, 2, at(2, 0.5), nil, false, false}, {2 * s, 2, at(2, 0.5), nil, true, false}, {49 * s, 2, at(1, 0.5), nil, true, false}, {29 * s, 2, at(1, 0.5), nil, true, false}, {16 * s, 2, at(1, 0.5), nil, true, true}}},
		{"YARN does not answer", Backoff{}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {time.Minute, 2, Competitors{}, errors.New("away"), true, true}}},
		{"it gave way in vain", Backoff{Given: 1, Full: older.Full}, []look{{0, 2, older, nil, false, false}, {2 * s, 2, older, nil, true, false}, {99 * s, 2, older, nil, true, false}, {s, 2, older, nil, true, true}}},
		{"it gave way and was of use", Backoff{Given: 1, Full: older.Full}, []look{{0, 2, at(0, 0.75), nil, false, false}, {2 * s, 2, at(0, 0.75), nil, true, false}, {31 * s, 2, at(0, 0.75), nil, true, true}}},
	} {
		w, now := Detector{unit: 10 * s, vain: 100 * s}, time.Now()
		for i, l := range tt.looks {
			now = now.Add(l.after)
			left, stuck := w.Watch(now, l.held, tt.turns, func() (Competitors, error) { return l.seen, l.err })
			if stuck != l.stuck || stuck && (left <= 0) != l.done {
				t.Errorf("%s: look %d says stuck %v, %s left", tt.name, i, stuck, left)
			}
		}
	}
}

// contender is a reservation of which a test's scheduler knows. It decides as an
// allocation does.
type contender struct {
	needs, held int
	backoff     Backoff
	detector    Detector
	ready       time.Time
}

// beat is one heartbeat of a contender's.
func (c *contender) beat(now time.Time, seen Competitors) {
	switch {
	case c.backoff.Whole:
		return
	case !c.backoff.Until.IsZero():
		if !now.Before(c.backoff.Until) && c.detector.Resumes(now, c.backoff, func() (Competitors, error) { return seen, nil }) {
			c.backoff.Until = time.Time{}
		}
		return
	case c.held == 0:
		c.detector.Reset()
		return
	}
	left, stuck := c.detector.Watch(now, c.held, c.backoff, func() (Competitors, error) { return seen, nil })
	if stuck && left <= 0 {
		c.backoff.Until, c.held = now.Add(c.detector.Delay(c.backoff.Given)), 0
		c.backoff.Given, c.backoff.Full = c.backoff.Given+1, seen.Full
		c.detector.Reset()
	}
}

// contend has reservations wait for places until all of them were whole, or for a while.
// Each comes a while after the one before, and ends a minute after it was whole.
func contend(places int, needs ...int) []*contender {
	var all []*contender
	begun := time.Now()
	for _, n := range needs {
		all = append(all, &contender{needs: n, detector: NewDetector(0)})
	}
	for now := begun; now.Before(begun.Add(time.Hour)); now = now.Add(time.Second) {
		free, waits := places, []*contender{}
		for i, c := range all {
			if !c.ready.IsZero() && now.Sub(c.ready) > time.Minute {
				c.held = 0
			}
			free -= c.held
			if !c.backoff.Whole && c.backoff.Until.IsZero() && now.Sub(begun) >= time.Duration(i)*time.Second {
				waits = append(waits, c)
			}
		}
		for ; free > 0 && len(waits) > 0; free-- { // to each in its turn, as queues of one weight have it
			c := slices.MinFunc(waits, func(a, b *contender) int { return cmp.Compare(a.held, b.held) })
			if c.held++; c.held == c.needs {
				c.backoff.Whole, c.ready = true, now
				waits = slices.DeleteFunc(waits, func(w *contender) bool { return w == c })
			}
		}
		for i, c := range all {
			seen := Competitors{Full: map[string]float32{}}
			for j, o := range all {
				if j == i || o.held == 0 || o.backoff.Whole {
					continue
				}
				seen.All++
				seen.Full[fmt.Sprint(j)] = float32(o.held) / float32(o.needs)
				if j > i {
					seen.Younger++
				}
			}
			c.beat(now, seen)
		}
	}
	return all
}

// TestContend: however many wait for one another, each is served in its time, and of two
// the older one first.
func TestContend(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		places int
		needs  []int
	}{
		{4, []int{3, 3}},
		{4, []int{4, 4}},
		{10, []int{6, 10}},
		{6, []int{4, 4, 4}},
		{12, []int{8, 12, 7, 9, 10}},
		{20, []int{11, 11, 11, 11, 11, 11, 11, 11}},
	} {
		for range 50 {
			var began time.Time
			for i, c := range contend(tt.places, tt.needs...) {
				if !c.backoff.Whole {
					t.Errorf("of %v on %d places number %d was never whole, in %d turns", tt.needs, tt.places, i, c.backoff.Given)
					continue
				}
				if len(tt.needs) == 2 && i == 1 && c.ready.Before(began) {
					t.Errorf("of %v on %d places the younger was whole first", tt.needs, tt.places)
				}
				began = c.ready
			}
		}
	}
}

func TestFindRivals(t *testing.T) {
	t.Parallel()
	app := func(cluster int64, id int32, progress float32) *yarnpb.ApplicationReport {
		return &yarnpb.ApplicationReport{ApplicationId: &yarnpb.ApplicationId{ClusterTimestamp: &cluster, Id: &id}, Progress: &progress, User: new("ada")}
	}
	me := app(5, 7, 0.5)
	for _, tt := range []struct {
		name string
		all  []*yarnpb.ApplicationReport
		want string
	}{
		{"itself", []*yarnpb.ApplicationReport{me}, "0 0  map[]"},
		{"empty and whole ones", []*yarnpb.ApplicationReport{app(5, 6, 0), app(5, 8, 1)}, "0 0  map[]"},
		{"younger ones, one of a ResourceManager that was restarted", []*yarnpb.ApplicationReport{app(6, 1, 0.5), app(5, 8, 0.25)}, "2 2 application_5_0008 of ada, which began after it map[application_5_0008:0.25 application_6_0001:0.5]"},
		{"an older and a younger one", []*yarnpb.ApplicationReport{app(5, 8, 0.25), app(5, 6, 0.75)}, "2 1 application_5_0006 of ada, which began before it map[application_5_0006:0.75 application_5_0008:0.25]"},
	} {
		r := FindCompetitors(me.GetApplicationId(), tt.all)
		if got := fmt.Sprint(r.All, " ", r.Younger, " ", r.Oldest, " ", r.Full); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

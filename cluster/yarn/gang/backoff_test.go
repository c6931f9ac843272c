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

// TestWatch feeds heartbeats to a detector whose interval T is 10 s, so that it releases 10 to 20 s
// after it has been stuck.
func TestWatch(t *testing.T) {
	t.Parallel()
	type look struct {
		after      time.Duration // since the look before
		held       int
		competitor string
		err        error
		stuck      bool
		release    bool
	}
	const s, other = time.Second, "application_5_0006 of ada"
	for _, tt := range []struct {
		name  string
		looks []look
	}{
		{"without a competitor", []look{
			{0, 2, "", nil, false, false}, {2 * s, 2, "", nil, false, false}, {time.Hour, 2, "", nil, false, false},
		}},
		{"while containers come", []look{
			{0, 1, other, nil, false, false}, {s / 2, 2, other, nil, false, false}, {s * 9 / 10, 2, other, nil, false, false}, {
				s / 10, 2, other, nil, true, false,
			},
		}},
		{"beside a competitor", []look{
			{0, 2, other, nil, false, false}, {2 * s, 2, other, nil, true, false}, {9 * s, 2, other, nil, true, false}, {
				11 * s, 2, other, nil, true, true,
			},
		}},
		{"after a container came", []look{
			{0, 2, other, nil, false, false},
			{2 * s, 2, other, nil, true, false},
			{9 * s, 3, other, nil, false, false},
			{2 * s, 3, other, nil, true, false},
			{9 * s, 3, other, nil, true, false},
		}},
		{"a competitor that comes late", []look{
			{0, 2, "", nil, false, false}, {2 * s, 2, "", nil, false, false}, {time.Hour, 2, other, nil, true, false}, {
				9 * s, 2, other, nil, true, false,
			},
		}},
		{"a competitor that is filled at last", []look{
			{0, 2, other, nil, false, false}, {2 * s, 2, other, nil, true, false}, {time.Minute, 2, "", nil, false, false},
		}},
		{"YARN does not answer", []look{{0, 2, other, nil, false, false}, {2 * s, 2, other, nil, true, false}, {
			time.Minute, 2, "", errors.New("away"), true, true,
		}}},
	} {
		d, now := Detector{timeout: time.Hour, interval: 10 * s}, time.Now()
		for i, l := range tt.looks {
			now = now.Add(l.after)
			left, stuck := d.Watch(now, l.held, func() (string, error) { return l.competitor, l.err })
			if stuck != l.stuck || stuck && (left <= 0) != l.release {
				t.Errorf("%s: look %d: stuck %v, %s left", tt.name, i, stuck, left)
			}
		}
	}
}

// TestDelay: the delay doubles with each release, is random within a factor of two, and leaves time to
// ask again before the reservation's timeout.
func TestDelay(t *testing.T) {
	t.Parallel()
	d := NewDetector(0)
	for _, tt := range []struct {
		releases int
		longest  time.Duration
	}{{0, 15 * time.Second}, {1, 30 * time.Second}, {2, time.Minute}, {3, 2 * time.Minute}, {4, 150 * time.Second}, {
		1000, 150 * time.Second,
	}} {
		for range 100 {
			if got := d.Delay(tt.releases); got < tt.longest/2 || got > tt.longest {
				t.Errorf("after %d releases it waits %s, want %s to %s", tt.releases, got, tt.longest/2, tt.longest)
			}
		}
	}
	if got := NewDetector(4 * time.Second); got.Delay(0) > time.Second {
		t.Errorf("with a timeout of 4 s the delay is %s", got.Delay(0))
	}
}

// contender is a reservation in the scheduler of simulate. It decides as an allocation does.
type contender struct {
	needs, held int
	backoff     Backoff
	detector    Detector
	ready       time.Time
}

// beat is one heartbeat of a contender.
func (c *contender) beat(now time.Time, competitor string) {
	switch {
	case c.backoff.Whole:
		return
	case !c.backoff.Until.IsZero():
		if !now.Before(c.backoff.Until) {
			c.backoff.Until = time.Time{}
		}
		return
	case c.held == 0:
		c.detector.Reset()
		return
	}
	left, stuck := c.detector.Watch(now, c.held, func() (string, error) { return competitor, nil })
	if stuck && left <= 0 {
		c.backoff.Until, c.held = now.Add(c.detector.Delay(c.backoff.Releases)), 0
		c.backoff.Releases++
		c.detector.Reset()
	}
}

// simulate has reservations compete for places for an hour at most, and returns them. Each begins a
// second after the one before, and ends a minute after it was filled.
func simulate(places int, needs ...int) []*contender {
	var all []*contender
	begun := time.Now()
	for _, n := range needs {
		all = append(all, &contender{needs: n, detector: NewDetector(0)})
	}
	for now := begun; now.Before(begun.Add(time.Hour)); now = now.Add(time.Second) {
		schedule(all, places, begun, now)
		for i, c := range all {
			competitor := ""
			for j, o := range all {
				if j != i && o.held > 0 && !o.backoff.Whole {
					competitor = fmt.Sprint(j)
				}
			}
			c.beat(now, competitor)
		}
	}
	return all
}

// schedule gives the free places to the contenders that wait, in turn, as queues of equal weight do.
func schedule(all []*contender, places int, begun, now time.Time) {
	var waits []*contender
	for i, c := range all {
		if !c.ready.IsZero() && now.Sub(c.ready) > time.Minute {
			c.held = 0
		}
		places -= c.held
		if !c.backoff.Whole && c.backoff.Until.IsZero() && now.Sub(begun) >= time.Duration(i)*time.Second {
			waits = append(waits, c)
		}
	}
	for ; places > 0 && len(waits) > 0; places-- {
		c := slices.MinFunc(waits, func(a, b *contender) int { return cmp.Compare(a.held, b.held) })
		if c.held++; c.held == c.needs {
			c.backoff.Whole, c.ready = true, now
			waits = slices.DeleteFunc(waits, func(w *contender) bool { return w == c })
		}
	}
}

// TestContend: however many reservations wait for one another, each of them is filled.
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
		var last time.Duration
		for range 50 {
			all := simulate(tt.places, tt.needs...)
			for i, c := range all {
				if !c.backoff.Whole {
					t.Errorf("of %v on %d places number %d was never filled, in %d releases", tt.needs, tt.places, i,
						c.backoff.Releases)
				}
				last = max(last, c.ready.Sub(all[0].ready))
			}
		}
		t.Logf("%v on %d places: all filled within %s of the first", tt.needs, tt.places, last.Round(time.Second))
	}
}

func TestFindCompetitor(t *testing.T) {
	t.Parallel()
	app := func(cluster int64, id int32, progress float32) *yarnpb.ApplicationReport {
		return &yarnpb.ApplicationReport{
			ApplicationId: &yarnpb.ApplicationId{ClusterTimestamp: &cluster, Id: &id}, Progress: &progress, User: new("ada"),
		}
	}
	self := app(5, 7, 0.5)
	for _, tt := range []struct {
		name string
		all  []*yarnpb.ApplicationReport
		want string
	}{
		{"itself", []*yarnpb.ApplicationReport{self}, ""},
		{"empty and filled ones", []*yarnpb.ApplicationReport{app(5, 6, 0), app(5, 8, 1)}, ""},
		{
			"one of a ResourceManager that was " +
				"restarted", []*yarnpb.ApplicationReport{self, app(6, 7, 0.5)}, "application_6_0007 of ada",
		},
		{"an older one", []*yarnpb.ApplicationReport{app(5, 6, 0.75), self}, "application_5_0006 of ada"},
	} {
		if got := FindCompetitor(self.GetApplicationId(), tt.all); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

package gang

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/tfcluster/tfcluster/cluster/yarn/protocol"
	"github.com/tfcluster/tfcluster/cluster/yarn/yarnpb"
)

// Backoff is the part of a reservation's state that the next driver needs.
type Backoff struct {
	Whole    bool      `json:"whole,omitempty"` // every executor had a container: nothing is released any more
	Again    bool      `json:"again,omitempty"` // an earlier application was whole: a run may go on without its sidecars
	Releases int       `json:"given,omitempty"` // how often the containers were released
	Until    time.Time `json:"until,omitzero"`  // when to ask again; zero while containers are held or asked for
	For      string    `json:"whom,omitempty"`  // the competitor of the last release, for messages
}

const (
	defaultTimeout = 10 * time.Minute // of a reservation whose request has none
	minInterval    = 3 * time.Second  // a release reaches the competitor after heartbeats of a second each
	maxInterval    = 15 * time.Second
	intervals      = 40          // T, in a timeout
	maxDelay       = 4           // the longest delay, as a part of the timeout
	fillPause      = time.Second // between two containers of a reservation that is being filled
	lookInterval   = 5 * time.Second
)

// Detector finds out that a reservation makes no progress beside a competitor. One goroutine uses it.
type Detector struct {
	timeout    time.Duration // of the reservation
	interval   time.Duration // T
	held       int           // containers, at the last Watch
	progressed time.Time     // when the last container came; zero if none is held
	stuckSince time.Time     // the first look without progress that saw a competitor; zero if there was none
	patience   time.Duration // how long to stay stuck: T to 2T, drawn with stuckSince
	looked     time.Time     // when competitors were last asked for
	competitor string        // for messages, "" if there is none
}

// NewDetector returns the detector of a reservation with the given timeout; 0 means the default.
func NewDetector(timeout time.Duration) Detector {
	timeout = cmp.Or(timeout, defaultTimeout)
	return Detector{timeout: timeout, interval: min(max(timeout/intervals, minInterval), maxInterval)}
}

// Competitor describes the reservation that Watch saw last, or is "".
func (d *Detector) Competitor() string { return d.competitor }

// Reset forgets what was watched. It is called when the reservation holds nothing or lacks nothing.
func (d *Detector) Reset() { d.held, d.progressed, d.stuckSince = 0, time.Time{}, time.Time{} }

// Delay returns how long to wait before asking again, after so many earlier releases.
func (d *Detector) Delay(releases int) time.Duration {
	delay := min(d.interval<<min(releases, 16), max(d.timeout/maxDelay, time.Second))
	return delay/2 + rand.N(delay/2)
}

// Watch is called at each heartbeat of a reservation that holds some containers and lacks others. It
// returns whether the reservation is stuck beside a competitor, and after how much more time without
// progress it should release its containers. find returns a description of a competitor, or "".
func (d *Detector) Watch(now time.Time, held int, find func() (string, error)) (left time.Duration, stuck bool) {
	if d.progressed.IsZero() || held > d.held {
		d.progressed, d.stuckSince = now, time.Time{}
	}
	d.held = held
	if now.Sub(d.progressed) < fillPause {
		return 0, false
	}
	over := !d.stuckSince.IsZero() && now.Sub(d.stuckSince) >= d.patience
	if over || now.Sub(d.looked) > min(lookInterval, d.interval/2) {
		if competitor, err := find(); err == nil { // after an error the last answer is used
			d.competitor = competitor
		}
		d.looked = now
	}
	if d.competitor == "" {
		d.stuckSince = time.Time{}
		return 0, false
	}
	if d.stuckSince.IsZero() {
		d.stuckSince, d.patience = now, d.interval+rand.N(d.interval)
	}
	return max(0, d.patience-now.Sub(d.stuckSince)), true
}

// FindCompetitor describes one of the other running applications that hold a part of their executors;
// it returns "" if there is none.
func FindCompetitor(self *yarnpb.ApplicationId, running []*yarnpb.ApplicationReport) string {
	for _, r := range running {
		id := r.GetApplicationId()
		if id.GetClusterTimestamp() == self.GetClusterTimestamp() && id.GetId() == self.GetId() || r.GetProgress() <= 0 ||
			r.GetProgress() >= 1 {
			continue
		}
		return fmt.Sprintf("%s of %s", protocol.ApplicationName(id), r.GetUser())
	}
	return ""
}

// About formats a duration for messages, rounded up to 5 s so that it does not change with each heartbeat.
func About(d time.Duration) string {
	const step = 5 * time.Second
	return fmt.Sprintf("about %.0f s", ((d + step - 1) / step * step).Seconds())
}

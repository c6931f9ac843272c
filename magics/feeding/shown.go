package feeding

import (
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shown is what a cell shows of a feed.
type shown struct {
	mu sync.Mutex
	// guarded by mu
	progress *clusterpb.FeedProgress
	waiting  string           // what it waits for before it begins again
	nan      map[string]int64 // the NaN of each column, in the last epoch that was delivered
}

func (s *shown) setProgress(p *clusterpb.FeedProgress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = p
}

func (s *shown) setWaiting(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = what
}

func (s *shown) setNaN(nan map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nan = nan
}

// Progress returns how far the feed is; nil before it has begun, and of no feed.
func (f *Feed) Progress() *clusterpb.FeedProgress {
	if f == nil {
		return nil
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.progress
}

// Waiting returns what the feed waits for before it begins again; "" while it is on, and of no feed.
func (f *Feed) Waiting() string {
	if f == nil {
		return ""
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.waiting
}

// NaN returns the number of NaN of each column, in the last epoch that was delivered; nil of no feed.
func (f *Feed) NaN() map[string]int64 {
	if f == nil {
		return nil
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.nan
}

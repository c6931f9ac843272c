package feeding

import (
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shown is the state of a feed for the cell that shows it.
type shown struct {
	mu sync.Mutex
	// guarded by mu
	progress *clusterpb.FeedProgress
	waiting  string           // what the feed waits for before it begins again
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

// Progress returns the progress of the feed; nil before its beginning, and for a nil Feed.
func (f *Client) Progress() *clusterpb.FeedProgress {
	if f == nil {
		return nil
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.progress
}

// Waiting returns what the feed waits for before it begins again; "" while it delivers, and for a nil Feed.
func (f *Client) Waiting() string {
	if f == nil {
		return ""
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.waiting
}

// NaN returns the number of NaN of each column, in the last epoch that was delivered; nil for a nil Feed.
func (f *Client) NaN() map[string]int64 {
	if f == nil {
		return nil
	}
	f.shown.mu.Lock()
	defer f.shown.mu.Unlock()
	return f.shown.nan
}

package feeding

import (
	"sync"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// shown is the state of a feed for the cell that shows it.
type shown struct {
	progress shared[*clusterpb.FeedProgress]
	waiting  shared[string]           // what the feed waits for before it begins again
	nan      shared[map[string]int64] // the NaN of each column, in the last epoch that was delivered
}

// shared is a value that any goroutine may set and read.
type shared[T any] struct {
	mu    sync.Mutex
	value T
}

func (s *shared[T]) set(value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value = value
}

func (s *shared[T]) get() T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}

// Progress returns the progress of the feed; nil before its beginning, and for a nil Feed.
func (f *Client) Progress() *clusterpb.FeedProgress {
	if f == nil {
		return nil
	}
	return f.shown.progress.get()
}

// Waiting returns what the feed waits for before it begins again; "" while it delivers, and for a nil Feed.
func (f *Client) Waiting() string {
	if f == nil {
		return ""
	}
	return f.shown.waiting.get()
}

// NaN returns the number of NaN of each column, in the last epoch that was delivered; nil for a nil Feed.
func (f *Client) NaN() map[string]int64 {
	if f == nil {
		return nil
	}
	return f.shown.nan.get()
}

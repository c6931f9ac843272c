package feeding

import (
	"maps"
	"sync"
)

// Detached has, for each cluster, the feed that continues after the end of its command. The zero value has none.
type Detached struct {
	mu sync.Mutex
	// guarded by mu
	feeds map[string]*Client
}

// Keep adds a cluster's feed. It replaces an earlier one.
func (d *Detached) Keep(cluster string, f *Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.feeds == nil {
		d.feeds = map[string]*Client{}
	}
	d.feeds[cluster] = f
}

// Of returns the feed of a cluster's run; nil if there is none.
func (d *Detached) Of(cluster string, run int32) *Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.feeds[cluster]; f != nil && f.open.GetRun() == run {
		return f
	}
	return nil
}

// Drop forgets a feed after a command has reported its end.
func (d *Detached) Drop(f *Client) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.feeds, func(_ string, each *Client) bool { return each == f })
}

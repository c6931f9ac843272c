package feeding

import "sync"

// Detached are the feeds that go on after the command that began them, by cluster. The zero value has none.
type Detached struct {
	mu sync.Mutex
	// guarded by mu
	feeds map[string]*Feed
}

// Keep adds a feed, in place of an earlier one of its cluster.
func (d *Detached) Keep(cluster string, f *Feed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.feeds == nil {
		d.feeds = map[string]*Feed{}
	}
	d.feeds[cluster] = f
}

// Of returns the feed of a cluster's run; nil if there is none.
func (d *Detached) Of(cluster string, run int32) *Feed {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.feeds[cluster]; f != nil && f.open.GetRun() == run {
		return f
	}
	return nil
}

// Drop forgets a feed after a command has reported its end.
func (d *Detached) Drop(f *Feed) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for cluster, each := range d.feeds {
		if each == f {
			delete(d.feeds, cluster)
		}
	}
}

package logstore

// Quota bounds what a store keeps, in bytes.
type Quota struct {
	Task    int64
	Cluster int64
	Segment int64
}

// DefaultQuota is 1 GB a task, 5 GB a cluster.
func DefaultQuota() Quota { return Quota{Task: 1 << 30, Cluster: 5 << 30, Segment: 16 << 20} }

// full is whether the last segment takes no more.
func (s *Store) full(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.segments[len(st.segments)-1].bytes >= s.quota.Segment
}

// makeRoom drops the oldest segments until another one fits the quota, and returns the
// files to be removed. Caller holds mu.
func (s *Store) makeRoom(st *stream) (gone []string) {
	var of int64
	for _, g := range st.segments {
		of += g.bytes
	}
	for of+s.quota.Segment > s.quota.Task && len(st.segments) > 0 {
		of -= st.segments[0].bytes
		gone = append(gone, s.dropOldest(st))
	}
	for s.bytes+s.quota.Segment > s.quota.Cluster {
		oldest := st
		for _, o := range s.streams {
			if len(o.segments) > 1 && (len(oldest.segments) == 0 || o.segments[0].last.Before(oldest.segments[0].last)) {
				oldest = o
			}
		}
		if len(oldest.segments) == 0 {
			break
		}
		gone = append(gone, s.dropOldest(oldest))
	}
	return gone
}

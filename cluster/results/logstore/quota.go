package logstore

// Quota limits the size of a store, in bytes.
type Quota struct {
	Task    int64
	Cluster int64
	Segment int64
}

// DefaultQuota returns 1 GiB per task and 5 GiB per cluster.
func DefaultQuota() Quota { return Quota{Task: 1 << 30, Cluster: 5 << 30, Segment: 16 << 20} }

// full reports whether the last segment is full.
func (s *Store) full(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return st.segments[len(st.segments)-1].bytes >= s.quota.Segment
}

// makeRoom drops the oldest segments until a new one fits into the quota, and returns the files
// to remove. The caller holds mu.
func (s *Store) makeRoom(st *stream) (dropped []string) {
	var of int64
	for _, g := range st.segments {
		of += g.bytes
	}
	for of+s.quota.Segment > s.quota.Task && len(st.segments) > 0 {
		of -= st.segments[0].bytes
		dropped = append(dropped, s.dropOldest(st))
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
		dropped = append(dropped, s.dropOldest(oldest))
	}
	return dropped
}

package groups

import (
	"context"
	"fmt"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// SetStopped records whether the process of a task is stopped by a signal or a debugger. The task's executor reports
// that with each heartbeat. If a member has been stopped for limit while others wait for it in a call, the group is
// over. SetStopped does not block.
func (s *Groups) SetStopped(run int32, task string, stopped bool, limit time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, g := range s.groups {
		if key.run != run || g.members[task] == nil {
			continue
		}
		_, known := g.stopped[task]
		switch {
		case stopped && !known:
			g.stopped[task] = time.Now().Add(limit)
			g.wake()
		case !stopped && known:
			delete(g.stopped, task)
			g.wake()
		}
	}
}

// stoppedUntil returns a channel that receives when a member has been stopped for long enough; nil if the member is
// not stopped.
func (s *Groups) stoppedUntil(g *group, task string) <-chan time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	due, stopped := g.stopped[task]
	if !stopped || g.over != "" {
		return nil
	}
	return time.After(time.Until(due))
}

// endStopped ends the group of a member that has been stopped for long enough, if other members wait for it. It
// requests their progress to find out. If no member waits, endStopped is called again later.
func (s *Groups) endStopped(ctx context.Context, g *group, m *clusterpb.GroupMember) {
	s.askAgain(g)
	patience := time.NewTimer(answering)
	defer patience.Stop()
	for waits := true; waits; {
		reason, changed := s.judgeStopped(g, m.GetTask())
		if reason != "" {
			return
		}
		select {
		case <-changed:
		case <-patience.C:
			waits = false
		case <-ctx.Done():
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, still := g.stopped[m.GetTask()]; still {
		g.stopped[m.GetTask()] = time.Now().Add(answering)
	}
}

// askAgain requests the members' progress anew.
func (s *Groups) askAgain(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(g.said)
	g.asked++
	g.wake()
}

// judgeStopped ends the group if a member is in a call while another one is stopped. It returns a reason if the wait
// is over, otherwise a channel that is closed at the next change.
func (s *Groups) judgeStopped(g *group, task string) (reason string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, still := g.stopped[task]; !still || g.over != "" {
		return "it goes on, or is over", nil
	}
	var waiting []string
	for other, p := range g.said {
		if other != task && p.GetCalling() {
			waiting = append(waiting, other)
		}
	}
	if len(waiting) == 0 {
		return "", g.changed
	}
	verb := "waits"
	if len(waiting) > 1 {
		verb = "wait"
	}
	g.over = fmt.Sprintf("%s is stopped (a SIGSTOP, or a debugger), and %s %s for it", task, names(waiting), verb)
	g.wake()
	return g.over, nil
}

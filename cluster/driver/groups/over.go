package groups

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Time limits of the driver's decision why a group is over. Both are longer than the events that they wait for.
const (
	// leaving is the time from the end of a connection between members to the end of the member that was killed.
	leaving = time.Second
	// answering is the time in which the members report their progress. A stopped member does not answer.
	answering = 2 * time.Second
)

// Fail implements the service.
func (s *Groups) Fail(ctx context.Context, f *clusterpb.GroupFailure) (*clusterpb.GroupOver, error) {
	g, err := s.find(ctx, f.GetRun(), f.GetAttempt(), f.GetTask())
	if err != nil {
		return nil, err
	}
	limit := leaving
	if f.GetLate() {
		limit = answering
		s.ask(g)
	}
	patience := time.NewTimer(limit)
	defer patience.Stop()
	for waits := f.GetLate() || f.GetLost() != ""; ; {
		reason, changed := s.judge(g, f, waits)
		if reason != "" {
			return &clusterpb.GroupOver{Reason: reason}, nil
		}
		select {
		case <-changed:
		case <-patience.C:
			waits = false
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Progress implements the service.
func (s *Groups) Progress(ctx context.Context, p *clusterpb.GroupProgress) (*clusterpb.GroupOver, error) {
	g, err := s.find(ctx, p.GetRun(), p.GetAttempt(), p.GetTask())
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.said[p.GetTask()] = proto.CloneOf(p)
	g.wake()
	return &clusterpb.GroupOver{Reason: g.over}, nil
}

// find returns the group of a member whose agent makes the call. It returns an error if the group has no such member.
func (s *Groups) find(ctx context.Context, run, attempt int32, task string) (*group, error) {
	if _, err := s.caller(ctx, task); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[groupKey{run, attempt}]
	if g == nil || g.members[task] == nil {
		return nil, status.Errorf(codes.NotFound, "%s is no member of the group of run %d", task, run)
	}
	return g, nil
}

// ask requests the members' progress, unless it was requested before.
func (s *Groups) ask(g *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.asked == 0 {
		g.asked = 1
		g.wake()
	}
}

// judge returns why a group is over. The first failure with a clear cause decides that. Otherwise it returns a
// channel that is closed at the next change. waits is false if no change is awaited any more.
func (s *Groups) judge(g *group, f *clusterpb.GroupFailure, waits bool) (reason string, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case g.over != "":
		return g.over, nil
	case g.left != "" && (f.GetLate() || f.GetLost() != ""):
		reason = g.left + " has left the group"
	case waits && (!f.GetLate() || len(g.said) < len(g.members)):
		return "", g.changed
	case f.GetLate():
		reason = g.late(f)
	case f.GetLost() != "":
		reason = fmt.Sprintf("%s lost the connection to %s: %s", f.GetTask(), f.GetLost(), f.GetReason())
	default:
		reason = f.GetReason()
	}
	g.over = reason
	g.wake()
	return reason, nil
}

// late returns which members have not arrived at a call after its time limit. A member in an earlier call is not to
// blame: it waits for another member, too.
func (g *group) late(f *clusterpb.GroupFailure) string {
	var missing, silent, faults []string
	for task := range g.members {
		if p := g.said[task]; p == nil {
			silent = append(silent, task)
		} else if p.GetCalls() < f.GetCall() && !p.GetCalling() {
			missing = append(missing, task)
		}
	}
	if len(missing) > 0 {
		faults = append(faults, names(missing)+" did not arrive")
	}
	if len(silent) > 0 {
		faults = append(faults, "the executor of "+names(silent)+" does not answer")
	}
	if len(faults) == 0 {
		faults = append(faults,
			fmt.Sprintf("all have arrived, but %s gets nothing from %s", f.GetTask(), names(f.GetWaits())))
	}
	return fmt.Sprintf("%s: %s: %s", f.GetWhat(), strings.Join(faults, ", "), f.GetReason())
}

// names returns the names of tasks in the order of their ranks.
func names(tasks []string) string {
	slices.SortFunc(tasks, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	return strings.Join(tasks, ", ")
}

// Package groups is the driver's side of collective calls. It forms a group of the tasks of a run, and informs the
// members when one has left. The data does not pass through the driver.
package groups

import (
	"context"
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Run is a run with tasks that may form a group.
type Run struct {
	ID    int32
	Tasks []Task // the chief and the workers, in the order of their ranks
	Over  string // why there can be no group; "": the run is active
}

// Task is a task of an attempt.
type Task struct {
	Name    string // "worker:1"
	Attempt int32
}

// Runs returns the run that is active.
type Runs interface {
	// GroupedRun returns the active or the last run.
	GroupedRun(ctx context.Context) (Run, error)
}

// Groups implements the service Groups.
type Groups struct {
	clusterpb.UnimplementedGroupsServer
	runs   Runs
	caller auth.Caller

	mu     sync.Mutex
	groups map[groupKey]*group // guarded by mu
}

// groupKey identifies a group. Each attempt of a run has one group.
type groupKey struct{ run, attempt int32 }

// group is the group of an attempt. Its fields are guarded by the mu of Groups.
type group struct {
	key     string // the key that the members know
	members map[string]*clusterpb.GroupMember
	left    string                              // the first member that has left
	asked   int                                 // number of requests to the members for their progress
	said    map[string]*clusterpb.GroupProgress // their answers
	stopped map[string]time.Time                // members with stopped processes: until when that is accepted
	over    string                              // why the group is over
	changed chan struct{}                       // closed and replaced at each change
}

// New returns a Groups without groups.
func New(runs Runs, caller auth.Caller) *Groups {
	return &Groups{runs: runs, caller: caller, groups: map[groupKey]*group{}}
}

// Join implements the service.
func (s *Groups) Join(m *clusterpb.GroupMember, stream grpc.ServerStreamingServer[clusterpb.GroupUpdate]) error {
	executor, err := s.caller(stream.Context(), m.GetTask())
	if err != nil {
		return err
	}
	run, err := s.runs.GroupedRun(stream.Context())
	if err != nil {
		return err
	}
	if run.Over != "" || run.ID != m.GetRun() || !slices.Contains(run.Tasks, Task{m.GetTask(), m.GetAttempt()}) {
		return status.Errorf(codes.FailedPrecondition, "%s is no task of the active run any more: run %d was ended, "+
			"or its tasks were started again", m.GetTask(), m.GetRun())
	}
	m = proto.CloneOf(m)
	m.Executor = executor
	g, err := s.enter(m)
	if err != nil {
		return err
	}
	defer s.leave(g, m)
	asked := 0
	for told := (&clusterpb.GroupUpdate{}); ; {
		update, asks, changed := s.update(g, run)
		update.Asks = asks > asked
		if len(told.GetMembers()) == 0 || update.GetLeft() != told.GetLeft() || update.GetAsks() || update.GetOver() != "" {
			members := update.GetMembers()
			if len(told.GetMembers()) > 0 { // a member connects to them once
				update.Members, update.Missing, members = nil, nil, told.GetMembers()
			}
			if err := stream.Send(update); err != nil {
				return err
			}
			told, asked = &clusterpb.GroupUpdate{Members: members, Left: update.GetLeft()}, asks
		}
		if update.GetOver() != "" {
			// The member may be calling Fail at this moment, which refuses tasks that are no members.
			<-stream.Context().Done()
			return stream.Context().Err()
		}
		select {
		case <-changed:
		case <-s.stoppedUntil(g, m.GetTask()):
			s.endStopped(stream.Context(), g, m)
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// enter adds a member to the group of its attempt. The first member makes the group.
func (s *Groups) enter(m *clusterpb.GroupMember) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := groupKey{m.GetRun(), m.GetAttempt()}
	g := s.groups[key]
	if g == nil {
		maps.DeleteFunc(s.groups, func(_ groupKey, old *group) bool { return len(old.members) == 0 })
		g = &group{
			key: rand.Text(), members: map[string]*clusterpb.GroupMember{}, said: map[string]*clusterpb.GroupProgress{},
			stopped: map[string]time.Time{}, changed: make(chan struct{}),
		}
		s.groups[key] = g
	}
	if g.members[m.GetTask()] != nil {
		return nil, status.Error(codes.AlreadyExists, errtext.Fault("%s is in the group already", m.GetTask()).Error())
	}
	g.members[m.GetTask()] = m
	g.wake()
	return g, nil
}

// leave removes a member. The group of an attempt is kept without members until the next group is made: a task that
// comes late is informed about the first member that left.
func (s *Groups) leave(g *group, m *clusterpb.GroupMember) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(g.members, m.GetTask())
	delete(g.stopped, m.GetTask())
	if g.left == "" {
		g.left = m.GetTask()
	}
	g.wake()
}

func (g *group) wake() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// update returns the present update for the members of a group, and the number of requests for their progress.
// changed is closed when these change.
func (s *Groups) update(g *group, run Run) (u *clusterpb.GroupUpdate, asks int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u = &clusterpb.GroupUpdate{Left: g.left, Over: g.over}
	for _, t := range run.Tasks {
		if m := g.members[t.Name]; m != nil {
			u.Members = append(u.Members, m)
		} else {
			u.Missing = append(u.Missing, t.Name)
		}
	}
	if len(u.GetMissing()) > 0 {
		u.Members = nil
	} else {
		u.Key = g.key
	}
	return u, g.asked, g.changed
}

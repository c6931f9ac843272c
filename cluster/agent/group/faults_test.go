package group

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/rdma/transport"
)

// layouts has the hosts of four ranks: all on one host; a ring of four hosts, in which not all are neighbours; two
// hosts with two ranks each.
var layouts = [][]string{{"a", "a", "a", "a"}, {"a", "b", "c", "d"}, {"a", "a", "b", "b"}, {"a", "b", "a", "b"}}

// reasons has, for each member, the error that its program received.
type reasons struct {
	mu  sync.Mutex
	got map[int]string
}

func (r *reasons) note(rank int, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.got[rank] = reason
}

// failed runs the programs of all members until their calls fail; it calls during in the middle. Each sum must be
// right. A program whose call has failed exits, as that of a task does; this ends its member.
func failed(t *testing.T, all []*Member, seconds float64, during func()) map[int]string {
	t.Helper()
	r := &reasons{got: map[int]string{}}
	var joined, work sync.WaitGroup
	for rank, m := range all {
		joined.Add(1)
		work.Go(func() {
			p, a := start(t, m, "")
			joined.Done()
			if a.Op != "group" {
				t.Errorf("rank %d joined: %+v", rank, a)
				return
			}
			defer m.ProgramEnded()
			for call := int32(1); ; call++ {
				got, a := p.timed(seconds, []int32{call, int32(rank)})
				switch want := []int32{call * int32(len(all)), int32(len(all) * (len(all) - 1) / 2)}; {
				case a.Op == "failed":
					r.note(rank, a.Reason)
					return
				case fmt.Sprint(got) != fmt.Sprint(want):
					t.Errorf("call %d of rank %d returned %v", call, rank, got)
				}
			}
		})
	}
	joined.Wait()
	during()
	work.Wait()
	return r.got
}

// timed makes an all_reduce with a time limit.
func (p *program) timed(seconds float64, vector []int32) ([]int32, answer) {
	return p.call(vector, fmt.Sprintf(`"kind":"all_reduce","seconds":%g`, seconds))
}

// TestEnds: when a program exits, the calls of all other programs fail at once with its name, also where they have no
// connection to it.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		t.Run(strings.Join(hosts, " "), func(t *testing.T) {
			t.Parallel()
			for rank := range hosts {
				all := open(t, hosts...)
				var ended time.Time
				got := failed(t, all, longest.Seconds(), func() {
					time.Sleep(20 * time.Millisecond)
					ended = time.Now()
					all[rank].ProgramEnded()
				})
				if took := time.Since(ended); took > longest/2 { // not the time limit of their calls
					t.Errorf("the others heard of the end of rank %d after %v", rank, took)
				}
				onlyNames(t, got, all, rank, "has left the group")
			}
		})
	}
}

// TestNotLost: only a broken connection to the driver is reported as lost; a refusal of the driver is passed on as it
// is.
func TestNotLost(t *testing.T) {
	t.Parallel()
	const lost = "the executor of worker:0 has lost the connection to the cluster's driver: "
	for _, tt := range []struct {
		err  error
		want string
	}{
		{
			status.Error(codes.FailedPrecondition, "worker:0 of attempt 0 is no task of the active run"),
			"worker:0 of attempt 0 is no task of the active run",
		},
		{status.Error(codes.AlreadyExists, "worker:0 is a member already"), "worker:0 is a member already"},
		{status.Error(codes.Unavailable, "the driver ends"), lost + "the driver ends"},
		{nil, lost + "the other side ended, or closed the connection"},
	} {
		server := grpc.NewServer()
		clusterpb.RegisterGroupsServer(server, refusing{err: tt.err})
		all := openAt(t, serve(t, server), make([]*transport.VerbsSettings, 1), nil, "a")
		if _, a := start(t, all[0], ""); a.Op != "failed" || a.Reason != tt.want {
			t.Errorf("%v: %+v", tt.err, a)
		}
	}
}

// refusing is a driver that refuses all members.
type refusing struct {
	clusterpb.UnimplementedGroupsServer
	err error
}

func (d refusing) Join(*clusterpb.GroupMember, grpc.ServerStreamingServer[clusterpb.GroupUpdate]) error {
	return d.err
}

// onlyNames checks that every other rank has a reason that says something of this rank, and names no further rank.
func onlyNames(t *testing.T, got map[int]string, all []*Member, lost int, what string) {
	t.Helper()
	for rank, m := range all {
		if rank == lost {
			continue
		}
		if reason := got[rank]; !strings.Contains(reason, strings.TrimSpace(all[lost].config.Task+" "+what)) {
			t.Errorf("%s says %q when %s is lost", m.config.Task, reason, all[lost].config.Task)
		}
		for other := range all {
			if name := all[other].config.Task; other != lost && strings.Contains(got[rank], name) {
				t.Errorf("%s says %q when %s is lost", m.config.Task, got[rank], all[lost].config.Task)
			}
		}
	}
}

// TestStopped: a program that makes no more calls is named in the errors of all others when their time limit has
// passed.
func TestStopped(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		t.Run(strings.Join(hosts, " "), func(t *testing.T) {
			t.Parallel()
			for rank := range hosts {
				all := open(t, hosts...)
				resume := make(chan struct{})
				got := map[int]string{}
				var mu sync.Mutex
				each(t, all, func(p *program, _ answer) {
					if _, a := p.timed(20, []int32{1}); a.Op != "done" {
						t.Errorf("%+v", a)
					}
					if p.rank == rank {
						<-resume
						return
					}
					_, a := p.timed(0.3, []int32{1})
					mu.Lock()
					defer mu.Unlock()
					if got[p.rank] = a.Reason; len(got) == len(hosts)-1 {
						close(resume)
					}
				})
				onlyNames(t, got, all, rank, "did not arrive: the timeout= of 300ms has passed")
			}
		})
	}
}

// TestBroken: when the connection of two members is cut, the calls of all members fail and name the two.
func TestBroken(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		t.Run(strings.Join(hosts, " "), func(t *testing.T) {
			t.Parallel()
			all := open(t, hosts...)
			got := failed(t, all, longest.Seconds(), func() {
				all[0].mu.Lock()
				defer all[0].mu.Unlock()
				for _, p := range all[0].joined.cfg.Peers {
					_ = p.Link.Close()
					break
				}
			})
			for rank := range all {
				if !strings.Contains(got[rank], "worker:0") || !strings.Contains(got[rank], "lost the connection to") ||
					got[rank] != got[0] {
					t.Errorf("worker:%d says %q, worker:0 %q", rank, got[rank], got[0])
				}
			}
		})
	}
}

// TestLater: a program that computes while the group ends receives the reason with its next call.
func TestLater(t *testing.T) {
	t.Parallel()
	all := open(t, "a", "a")
	ended := make(chan struct{})
	each(t, all, func(p *program, _ answer) {
		if p.rank == 1 {
			all[1].ProgramEnded()
			close(ended)
			return
		}
		<-ended
		all[0].cancel(fmt.Errorf("worker:1 has left the group"))
		time.Sleep(50 * time.Millisecond)
		if _, a := p.timed(20, []int32{1}); a.Op != "failed" || a.Reason != "worker:1 has left the group" {
			t.Errorf("%+v", a)
		}
	})
}

// TestEndsWhileJoining: a program that exits at a random moment while its group forms is named in the errors of all
// others.
func TestEndsWhileJoining(t *testing.T) {
	t.Parallel()
	for _, hosts := range layouts {
		t.Run(strings.Join(hosts, " "), func(t *testing.T) {
			t.Parallel()
			for moment := range 12 {
				rank := moment % len(hosts)
				all := open(t, hosts...)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					for ready := false; !ready; time.Sleep(time.Millisecond) { // the driver knows the member
						all[rank].mu.Lock()
						ready = all[rank].missing != "" || all[rank].known != ""
						all[rank].mu.Unlock()
					}
					time.Sleep(time.Duration(rand.IntN(12)) * time.Millisecond)
					all[rank].ProgramEnded()
				}()
				var mu sync.Mutex
				got := map[int]string{}
				began := time.Now()
				each(t, all, func(p *program, a answer) {
					defer p.member.ProgramEnded()
					for a.Op != "failed" && a.Op != "" {
						_, a = p.timed(longest.Seconds(), []int32{1})
					}
					mu.Lock()
					defer mu.Unlock()
					got[p.member.number()] = a.Reason
				})
				<-ended
				if took := time.Since(began); took > longest/2 { // not the limit of their calls
					t.Errorf("the others heard of the end of rank %d after %v", rank, took)
				}
				onlyNames(t, got, all, rank, "")
			}
		})
	}
}

// number returns the number in a task's name.
func (m *Member) number() int { return int(m.config.Task[len(m.config.Task)-1] - '0') }

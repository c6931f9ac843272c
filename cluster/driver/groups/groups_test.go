package groups

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// longest is the longest time that a test waits for something that must happen.
const longest = 2 * time.Minute

// fakeRuns is a coordinator with one run.
type fakeRuns struct {
	mu  sync.Mutex
	run Run
}

func (r *fakeRuns) GroupedRun(context.Context) (Run, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run, nil
}

// stranger is a task that the calling agent does not run.
const stranger = "worker:9"

// serve returns a client of the service for a run of these tasks.
func serve(t *testing.T, runs Runs) (*Groups, clusterpb.GroupsClient) {
	t.Helper()
	g := New(runs, func(_ context.Context, task string) (string, error) {
		if task == stranger {
			return "", status.Error(codes.PermissionDenied, "another executor's task")
		}
		return "executor", nil
	})
	server := grpc.NewServer()
	clusterpb.RegisterGroupsServer(server, g)
	ln := bufconn.Listen(1 << 16)
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:bed", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return g, clusterpb.NewGroupsClient(conn)
}

// joining is the stream of a task.
type joining struct {
	grpc.ServerStreamingClient[clusterpb.GroupUpdate]
	leave context.CancelFunc
}

func join(t *testing.T, client clusterpb.GroupsClient, task string, attempt int32) joining {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	t.Cleanup(cancel)
	stream, err := client.Join(ctx, &clusterpb.GroupMember{Run: 1, Attempt: attempt, Task: task, Host: "host of " + task})
	if err != nil {
		t.Fatal(err)
	}
	return joining{stream, cancel}
}

// until receives updates until fits accepts one.
func (j joining) until(t *testing.T, fits func(*clusterpb.GroupUpdate) bool) *clusterpb.GroupUpdate {
	t.Helper()
	for {
		u, err := j.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if fits(u) {
			return u
		}
	}
}

// TestJoin: the members are informed which tasks are missing, then of all members in the order of ranks, and at the
// end of the first member that leaves.
func TestJoin(t *testing.T) {
	t.Parallel()
	g, client := serve(t,
		&fakeRuns{run: Run{ID: 1, Tasks: []Task{{Name: "chief:0"}, {Name: "worker:0"}, {Name: "worker:1"}}}})
	last := join(t, client, "worker:1", 0)
	last.until(t, func(u *clusterpb.GroupUpdate) bool {
		return slices.Equal(u.GetMissing(), []string{"chief:0", "worker:0"})
	})
	chief := join(t, client, "chief:0", 0)
	last.until(t, func(u *clusterpb.GroupUpdate) bool { return slices.Equal(u.GetMissing(), []string{"worker:0"}) })
	first := join(t, client, "worker:0", 0)
	var keys []string
	for _, j := range []joining{last, chief, first} {
		u := j.until(t, func(u *clusterpb.GroupUpdate) bool { return len(u.GetMembers()) > 0 })
		var names []string
		for _, m := range u.GetMembers() {
			names = append(names, m.GetTask())
			if m.GetHost() != "host of "+m.GetTask() || m.GetExecutor() != "executor" {
				t.Errorf("%v", m)
			}
		}
		if !slices.Equal(names, []string{"chief:0", "worker:0", "worker:1"}) {
			t.Errorf("the ranks are %v", names)
		}
		keys = append(keys, u.GetKey())
	}
	if len(keys[0]) < 26 || keys[0] != keys[1] || keys[0] != keys[2] {
		t.Errorf("the keys are %q", keys)
	}
	chief.leave()
	for _, j := range []joining{last, first} {
		if u := j.until(t, func(*clusterpb.GroupUpdate) bool { return true }); u.GetLeft() != "chief:0" {
			t.Errorf("%v", u)
		}
		j.leave()
	}
	for deadline := time.Now().Add(longest); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		n := len(g.groups[groupKey{1, 0}].members)
		g.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the members are kept")
		}
	}
	if u, err := join(t, client, "worker:0", 0).Recv(); err != nil || u.GetLeft() != "chief:0" {
		t.Errorf("who comes later hears %v, %v", u, err)
	}
}

// TestRefused: a task that is not of the active run, and a task that is already a member, are refused.
func TestRefused(t *testing.T) {
	t.Parallel()
	runs := &fakeRuns{run: Run{ID: 1, Tasks: []Task{{Name: "worker:0", Attempt: 2}}}}
	_, client := serve(t, runs)
	for _, c := range []struct {
		task    string
		attempt int32
	}{{"worker:1", 2}, {"worker:0", 1}, {"", 2}} {
		if _, err := join(t, client, c.task, c.attempt).Recv(); status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if u, err := join(t, client, "worker:0", 2).Recv(); err != nil || len(u.GetMembers()) != 1 {
		t.Errorf("%v, %v", u, err)
	}
	if _, err := join(t, client, "worker:0", 2).Recv(); status.Code(err) != codes.AlreadyExists {
		t.Errorf("a second time: %v", err)
	}
	runs.mu.Lock()
	runs.run.Over = "run 1 has ended"
	runs.mu.Unlock()
	if _, err := join(t, client, "worker:0", 2).Recv(); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("of a run that has ended: %v", err)
	}
}

// TestStrangers: an agent speaks for its own task alone.
func TestStrangers(t *testing.T) {
	t.Parallel()
	_, client := serve(t, &fakeRuns{run: Run{ID: 1, Tasks: []Task{{Name: "worker:0"}, {Name: stranger}}}})
	stream, err := client.Join(t.Context(), &clusterpb.GroupMember{Run: 1, Task: stranger})
	if err != nil {
		t.Fatal(err)
	}
	_, joined := stream.Recv()
	_, failed := client.Fail(t.Context(), &clusterpb.GroupFailure{Run: 1, Task: stranger})
	_, reported := client.Progress(t.Context(), &clusterpb.GroupProgress{Run: 1, Task: stranger})
	for call, err := range map[string]error{"Join": joined, "Fail": failed, "Progress": reported} {
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", call, err)
		}
	}
}

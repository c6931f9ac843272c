package coordinator

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/auth"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lifecycle"
)

// TestConclusion: a cluster that was made for one run ends as the run does, another well.
func TestConclusion(t *testing.T) {
	t.Parallel()
	failed := &clusterpb.RunStatus{
		Id: 1, State: "failed", Failure: &clusterpb.Failure{Summary: "worker:0 exited with code 17\nat length"},
	}
	stopped := &clusterpb.RunStatus{Id: 1, State: "stopped", Failure: &clusterpb.Failure{Summary: "stopped on request"}}
	for _, tt := range []struct {
		name   string
		oneRun bool
		refuse string // why the reservation failed
		run    *clusterpb.RunStatus
		last   int32 // run of its directory when its driver began
		saved  []byte
		how    cluster.FinalStatus
		why    string
	}{
		{"a failed run", true, "", failed, 0, nil, cluster.Failed, "worker:0 exited with code 17"},
		{"a failed run of many", false, "", failed, 0, nil, cluster.Succeeded, ""},
		{"a good run", true, "", &clusterpb.RunStatus{Id: 1, State: "finished"}, 0, nil, cluster.Succeeded, ""},
		{"a stopped run", true, "", stopped, 0, nil, cluster.Killed, "stopped on request"},
		{"none", true, "", nil, 0, nil, cluster.Killed, "ended before its run began: shut down"},
		{"none of many", false, "", nil, 0, nil, cluster.Succeeded, ""},
		{"not reserved", false, "0 of 2 executors are ready", nil, 0, nil, cluster.Failed, "0 of 2 executors are ready"},
		{"another cluster's run", true, "", failed, 1, nil, cluster.Killed, "ended before its run began: shut down"},
		{"an earlier driver's run", true, "", failed, 1, []byte("{}"), cluster.Failed, "worker:0 exited with code 17"},
	} {
		c := New(Config{
			Request: &clusterpb.ReserveRequest{OneRun: tt.oneRun}, StateDir: t.TempDir(),
			Directory: Directory{Dir: t.TempDir(), LastRun: tt.last}, Recovered: Recovered{Saved: tt.saved},
		})
		c.lc = lifecycle.New(nil, nil, lifecycle.DefaultLimits(), false)
		if tt.refuse != "" {
			c.reserved.answer = &clusterpb.ReserveUpdate{Failure: &clusterpb.Failure{Summary: tt.refuse}}
		}
		if tt.run != nil {
			c.runs.records = []*record{{status: tt.run, loaded: true}}
		}
		if how, why := c.finalStatus("shut down"); how != tt.how || why != tt.why {
			t.Errorf("%s: %d %q, want %d %q", tt.name, how, why, tt.how, tt.why)
		}
		c.files.shipped.Close()
	}
}

// late is an engine that answers once nobody waits for it any more.
type late struct {
	engine
	err error
	how cluster.FinalStatus
	why string
}

func (l *late) Allocate(ctx context.Context, _ cluster.Request) (cluster.Allocation, error) {
	<-ctx.Done()
	if l.err != nil {
		return nil, l.err
	}
	return l, nil
}

func (l *late) Recover(ctx context.Context, req cluster.Request, _ []byte) (cluster.Allocation, error) {
	return l.Allocate(ctx, req)
}

func (l *late) Release(ctx context.Context, how cluster.FinalStatus, why string) error {
	l.how, l.why = how, why
	return l.engine.Release(ctx, how, why)
}

// TestLateEngine: a cluster that was given up before its engine answered has come to
// nothing, and what may be left of an earlier driver's is told.
func TestLateEngine(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		saved []byte
		err   error
		how   cluster.FinalStatus
		why   string
		left  string
	}{
		{"it answers", nil, nil, cluster.Killed, "ended before its run began: given up", ""},
		{"it is away", nil, errors.New("away"), cluster.Succeeded, "", ""},
		{"it is away, and has something", []byte("{}"), errors.New("away"), cluster.Succeeded, "", "were not released"},
	} {
		authority, err := auth.NewAuthority("test")
		if err != nil {
			t.Fatal(err)
		}
		e := &late{err: tt.err}
		c := New(Config{
			Name:      "test",
			Request:   &clusterpb.ReserveRequest{OneRun: true, Roles: []*clusterpb.Role{{Name: cluster.Worker, Count: 1}}},
			Authority: authority, StateDir: t.TempDir(), Directory: Directory{Dir: t.TempDir()}, Backend: e,
			Recovered: Recovered{Saved: tt.saved},
		})
		over := make(chan error, 1)
		go func() { over <- c.Run(within(t)) }()
		told := ""
		stream := &sent[clusterpb.ShutdownUpdate]{
			ctx: within(t), every: func(u *clusterpb.ShutdownUpdate) { told += u.GetText() },
		}
		if err := c.Control().(*control).Shutdown(&clusterpb.ShutdownRequest{Reason: "given up"}, stream); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err := <-over; err != nil || e.how != tt.how || e.why != tt.why || e.released != (tt.err == nil) {
			t.Errorf("%s: it ends with %v, is told %d %q, released %v", tt.name, err, e.how, e.why, e.released)
		}
		if (tt.left == "") != (told == "") || !strings.Contains(told, tt.left) {
			t.Errorf("%s: who shuts it down reads %q", tt.name, told)
		}
	}
}

package clustertest

import (
	"context"
	"errors"
	"io"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// testSameDirectory reserves a second cluster with the name and the directory of an earlier one. It has none
// of the earlier cluster's runs, unless they are requested.
func testSameDirectory(t *testing.T, h Harness) {
	first := h.Start(t, "worker=1")
	if st := first.Script(checkpointing).Wait(); st.GetId() != 1 || st.GetState() != "finished" {
		t.Fatalf("run %d is %s: %v", st.GetId(), st.GetState(), st.GetFailure())
	}
	first.End()
	c := h.Start(t, "worker=1", func(r *clusterpb.ReserveRequest) {
		r.Name = first.Name
		if !h.RemoteResults {
			r.Dir = first.Dir
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	if st, err := c.Status(ctx, &clusterpb.StatusRequest{}); err != nil || st.GetRun() != nil {
		t.Errorf("its status shows run %v: %v", st.GetRun(), err)
	}
	follow, err := c.Follow(ctx, &clusterpb.FollowRequest{})
	if err == nil {
		_, err = follow.Recv()
	}
	if want := "nothing has been started in this cluster yet: %tfcluster start PROGRAM; " +
		"history --all lists the runs that earlier ones left in its directory"; status.Code(err) != codes.NotFound ||
		status.Convert(err).Message() != want {
		t.Errorf("wait ends with %v", err)
	}
	own, err := c.History(ctx, &clusterpb.HistoryRequest{})
	if err != nil || len(own.GetRuns()) != 0 || own.GetEarlier() != 1 {
		t.Errorf("its history is %v: %v", own, err)
	}
	all, err := c.History(ctx, &clusterpb.HistoryRequest{All: true})
	if err != nil || len(all.GetRuns()) != 1 || all.GetEarlier() != 0 {
		t.Errorf("the whole history is %v: %v", all, err)
	}
	if lines := c.countLines(ctx, 1); lines == 0 {
		t.Error("the lines of run 1 cannot be read")
	}
	st := c.Script(checkpointing, func(s *clusterpb.StartRequest) { s.Options.Resume = "last" }).Wait()
	if st.GetId() != 2 || st.GetResumedFrom() != "run 1 of an earlier cluster" {
		t.Errorf("run %d is resumed from %q", st.GetId(), st.GetResumedFrom())
	}
	own, err = c.History(ctx, &clusterpb.HistoryRequest{})
	if err != nil || len(own.GetRuns()) != 1 || own.GetRuns()[0].GetId() != 2 {
		t.Errorf("its history is %v: %v", own, err)
	}
}

// countLines returns how many lines of a run the driver returns.
func (c *Cluster) countLines(ctx context.Context, run int32) (lines int) {
	c.T.Helper()
	s, err := c.Client.Logs(ctx, &clusterpb.LogsRequest{Run: run})
	if err != nil {
		c.T.Fatal(err)
	}
	for {
		u, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return lines
		}
		if err != nil {
			c.T.Fatal(err)
		}
		lines += len(u.GetLines())
	}
}

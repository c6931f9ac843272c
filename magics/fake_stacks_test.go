package magics

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Why returns what the test has set, or how the last run ended.
func (f *fakeCluster) Why(context.Context, *clusterpb.WhyRequest) (*clusterpb.WhyReply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.why == nil {
		return &clusterpb.WhyReply{Text: "no run has been started"}, nil
	}
	return f.why, nil
}

func (f *fakeCluster) Stacks(req *clusterpb.StacksRequest, s grpc.ServerStreamingServer[clusterpb.StacksReply]) error {
	f.mu.Lock()
	replies, run := slices.Clone(f.stacks), f.run
	f.mu.Unlock()
	if run == nil {
		return status.Error(codes.FailedPrecondition, "no run is active")
	}
	if _, err := cluster.SelectTasks(cluster.Tasks(f.request.GetRoles()), req.GetTasks()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	for _, r := range replies {
		if err := s.Send(r); err != nil {
			return err
		}
	}
	return f.lose()
}

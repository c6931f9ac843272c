package lines

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// Source sends the replies of the call Logs of the Control service. It waits while send does not return.
type Source func(ctx context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error

// Local is the Source of a Control service in this process.
func Local(control clusterpb.ControlServer) Source {
	return func(ctx context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
		return control.Logs(req, &localStream{ctx: ctx, send: send})
	}
}

// localStream is the stream of a call within the process.
type localStream struct {
	grpc.ServerStream // nil: a Control service calls only the methods below

	ctx  context.Context
	send func(*clusterpb.LinesReply) error
}

func (s *localStream) Context() context.Context               { return s.ctx }
func (s *localStream) Send(reply *clusterpb.LinesReply) error { return s.send(reply) }
func (s *localStream) SetHeader(metadata.MD) error            { return nil }
func (s *localStream) SetTrailer(metadata.MD)                 {}

// Remote is the Source of a Control service behind a connection.
func Remote(control clusterpb.ControlClient) Source {
	return func(ctx context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
		ctx, cancel := context.WithCancel(ctx) // ends the call if send fails
		defer cancel()
		stream, err := control.Logs(ctx, req)
		if err != nil {
			return err
		}
		for {
			reply, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := send(reply); err != nil {
				return err
			}
		}
	}
}

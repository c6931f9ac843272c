package driver

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

// giveEnvironment packs the environment that was given, and puts it where the driver has
// it. It returns what the driver is told.
func (f *front) giveEnvironment(ctx context.Context) (json.RawMessage, error) {
	given := f.req.GetShipEnvironment()
	if given == "" {
		return nil, nil
	}
	said := int64(0)
	e, err := f.depot.Environment(ctx, given, func(read int64) {
		if read-said >= 32<<20 {
			said = read
			f.tell(fmt.Sprintf("the environment is packed, %d MB so far", read>>20))
		}
	})
	if err != nil {
		return nil, err
	}
	f.tell("the environment is put on HDFS")
	if err := f.give(ctx, e.GetPacked()); err != nil {
		return nil, fmt.Errorf("--venv %s: %w", given, err)
	}
	return protojson.Marshal(e)
}

// give puts one content where the driver has it.
func (f *front) give(ctx context.Context, s *clusterpb.Shipped) error {
	r, err := f.depot.Open(s.GetContent().GetSha256())
	if err != nil {
		return err
	}
	defer r.Close()
	return f.host.Give(ctx, f.req, s.GetContent(), r)
}

// start hands a start on, with the files that it is given as they are now.
func (f *front) start(method string, s grpc.ServerStream) error {
	var asked []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	if len(f.req.GetShip()) == 0 {
		return f.forward(method, s, [][]byte{asked})
	}
	req := &clusterpb.StartRequest{}
	err := proto.Unmarshal(asked, req)
	if err == nil {
		err = f.giveFiles(s.Context(), req)
	}
	if err == nil {
		asked, err = proto.Marshal(req)
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return f.forward(method, s, [][]byte{asked})
}

// giveFiles puts the files of --files, as they are now, where the driver has them, and
// names them in a start.
func (f *front) giveFiles(ctx context.Context, req *clusterpb.StartRequest) error {
	if len(f.req.GetShip()) == 0 {
		return nil
	}
	var err error
	if req.Given, err = f.depot.Files(ctx, f.req.GetShip()); err != nil {
		return err
	}
	for i, g := range req.GetGiven() {
		if err := f.give(ctx, g); err != nil {
			return fmt.Errorf("--files %s: %w", f.req.GetShip()[i].GetPath(), err)
		}
	}
	return nil
}

package proxy

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
func (p *Proxy) giveEnvironment(ctx context.Context) (json.RawMessage, error) {
	given := p.cfg.Request.GetShipEnvironment()
	if given == "" {
		return nil, nil
	}
	said := int64(0)
	e, err := p.depot.Environment(ctx, given, func(read int64) {
		if read-said >= 32<<20 {
			said = read
			p.tell(fmt.Sprintf("the environment is packed, %d MB so far", read>>20))
		}
	})
	if err != nil {
		return nil, err
	}
	p.tell("the environment is put on HDFS")
	if err := p.give(ctx, e.GetPacked()); err != nil {
		return nil, fmt.Errorf("--venv %s: %w", given, err)
	}
	return protojson.Marshal(e)
}

// give puts one content where the driver has it.
func (p *Proxy) give(ctx context.Context, s *clusterpb.Shipped) error {
	r, err := p.depot.Open(s.GetContent().GetSha256())
	if err != nil {
		return err
	}
	defer r.Close()
	return p.cfg.Launcher.Upload(ctx, p.cfg.Request, s.GetContent(), r)
}

// start hands a start on, with the files that it is given as they are now.
func (p *Proxy) start(method string, s grpc.ServerStream) error {
	var asked []byte
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	if err := p.takesStart(s.Context()); err != nil {
		return err
	}
	if len(p.cfg.Request.GetShip()) == 0 {
		return p.forward(method, s, [][]byte{asked})
	}
	req := &clusterpb.StartRequest{}
	err := proto.Unmarshal(asked, req)
	if err == nil {
		err = p.giveFiles(s.Context(), req)
	}
	if err == nil {
		asked, err = proto.Marshal(req)
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return p.forward(method, s, [][]byte{asked})
}

// takesStart asks the driver whether it takes starts of this version's: while it did not
// answer, this process spoke for it.
func (p *Proxy) takesStart(ctx context.Context) error {
	conn, err := p.reach(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, greetLimit)
	defer cancel()
	st, err := clusterpb.NewControlClient(conn).Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return nil //nolint:nilerr // the start, which waits for the driver, tells
	}
	if why := st.Outdated(p.cfg.Version); why != "" {
		return status.Error(codes.FailedPrecondition, why)
	}
	return nil
}

// giveFiles puts the files of --files, as they are now, where the driver has them, and
// names them in a start.
func (p *Proxy) giveFiles(ctx context.Context, req *clusterpb.StartRequest) error {
	if len(p.cfg.Request.GetShip()) == 0 {
		return nil
	}
	var err error
	if req.Given, err = p.depot.Files(ctx, p.cfg.Request.GetShip()); err != nil {
		return err
	}
	for i, g := range req.GetGiven() {
		if err := p.give(ctx, g); err != nil {
			return fmt.Errorf("--files %s: %w", p.cfg.Request.GetShip()[i].GetPath(), err)
		}
	}
	return nil
}

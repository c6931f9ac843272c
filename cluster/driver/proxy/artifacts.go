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

// uploadEnvironment packs and uploads the environment of --venv. It returns the driver's
// description of it, as JSON; nil without --venv.
func (p *Proxy) uploadEnvironment(ctx context.Context) (json.RawMessage, error) {
	venv := p.cfg.Request.GetShipEnvironment()
	if venv == "" {
		return nil, nil
	}
	reported := int64(0)
	e, err := p.artifacts.Environment(ctx, venv, func(read int64) {
		if read-reported >= 32<<20 {
			reported = read
			p.setWaiting(fmt.Sprintf("the environment is packed, %d MB so far", read>>20))
		}
	})
	if err != nil {
		return nil, err
	}
	p.setWaiting("the environment is put on HDFS")
	if err := p.upload(ctx, e.GetPacked()); err != nil {
		return nil, fmt.Errorf("--venv %s: %w", venv, err)
	}
	return protojson.Marshal(e)
}

// upload uploads one file for the driver.
func (p *Proxy) upload(ctx context.Context, s *clusterpb.Shipped) error {
	r, err := p.artifacts.Open(s.GetContent().GetSha256())
	if err != nil {
		return err
	}
	defer r.Close()
	return p.cfg.Launcher.Upload(ctx, p.cfg.Request, s.GetContent(), r)
}

// start forwards a Start after uploading the current content of --files.
func (p *Proxy) start(method string, asked []byte, s grpc.ServerStream) error {
	if err := p.checkProtocol(s.Context()); err != nil {
		return err
	}
	if len(p.cfg.Request.GetShip()) == 0 {
		return p.forward(method, s, asked)
	}
	req := &clusterpb.StartRequest{}
	err := proto.Unmarshal(asked, req)
	if err == nil {
		err = p.uploadFiles(s.Context(), req)
	}
	if err == nil {
		asked, err = proto.Marshal(req)
	}
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	return p.forward(method, s, asked)
}

// checkProtocol returns an error if the driver does not support this version's starts: clients
// may have got this process's version while the driver did not answer.
func (p *Proxy) checkProtocol(ctx context.Context) error {
	conn, err := p.waitForDriver(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, connectLimit)
	defer cancel()
	st, err := clusterpb.NewControlClient(conn).Status(ctx, &clusterpb.StatusRequest{})
	if err != nil {
		return nil //nolint:nilerr // Start, which waits for the driver, reports it
	}
	if why := st.Outdated(p.cfg.Version); why != "" {
		return status.Error(codes.FailedPrecondition, why)
	}
	return nil
}

// uploadFiles uploads the current content of --files and adds their names to a start.
func (p *Proxy) uploadFiles(ctx context.Context, req *clusterpb.StartRequest) error {
	if len(p.cfg.Request.GetShip()) == 0 {
		return nil
	}
	var err error
	if req.Given, err = p.artifacts.Files(ctx, p.cfg.Request.GetShip()); err != nil {
		return err
	}
	for i, g := range req.GetGiven() {
		if err := p.upload(ctx, g); err != nil {
			return fmt.Errorf("--files %s: %w", p.cfg.Request.GetShip()[i].GetPath(), err)
		}
	}
	return nil
}

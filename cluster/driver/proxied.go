package driver

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/lines"
	"github.com/tfcluster/tfcluster/cluster/driver/proxy"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// proxy has the engine run the cluster's driver, and forwards clients' calls to it until the
// cluster ends. It announces on ready that clients can call.
func (d *driver) proxy(ctx context.Context, ready io.WriteCloser) error {
	p, err := d.newProxy()
	if err != nil {
		return errors.Join(err, announce(ready, "", err), d.forget())
	}
	if err := p.Save(); err != nil {
		p.Close()
		return errors.Join(err, announce(ready, "", err), d.forget())
	}
	if err := announce(ready, d.socket, nil); err != nil {
		p.Close()
		return errors.Join(err, d.forget())
	}
	defer d.closeLines()
	kept, err := p.Run(ctx)
	if kept {
		return err
	}
	return errors.Join(err, (&state.State{Name: d.name, Socket: d.socket}).Forget())
}

func (d *driver) newProxy() (*proxy.Proxy, error) {
	host, ok := d.engine.Backend.(cluster.DriverLauncher)
	if !ok {
		return nil, fmt.Errorf("--managed is for engines that can run a cluster's driver, such as yarn: %s cannot, "+
			"so leave --managed out", d.req.GetBackend())
	}
	if err := d.listenClients(); err != nil {
		return nil, err
	}
	cfg := proxy.Config{
		Name: d.name, Version: d.opt.Version, Since: d.since, Request: d.req, Begin: d.autostart, Authority: d.authority,
		Launcher: host, StateDir: d.stateDir, Dir: d.dir, Program: d.opt.Program, Old: d.old, Clients: d.clients, Log: d.log,
		Remote: func() (proxy.Remote, io.Closer, error) {
			e, err := d.opt.OpenRemote(d.dir)
			return e.Reader, e.Close, err
		},
		Save:   func(allocation string, saved []byte) error { return d.save(allocation, saved, d.lastRun, false) },
		Record: d.recordApplication,
	}
	var p *proxy.Proxy
	cfg.TensorBoard = d.board(
		func(ctx context.Context, req *clusterpb.LogsRequest, send func(*clusterpb.LinesReply) error) error {
			control, err := p.Control(ctx)
			if err != nil {
				return err
			}
			return lines.Remote(control)(ctx, req, send)
		})
	var err error
	p, err = proxy.New(cfg) // before it serves clients, nobody knows the path of lines
	return p, err
}

package driver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/webui"
	"github.com/tfcluster/tfcluster/cluster/state"
)

// Hosted is a driver that its engine runs, such as a managed ApplicationMaster of YARN:
// clients dial it as agents do. It serves until the cluster is released. input is what
// the proxy gave to cluster.DriverLauncher's Submit; state is what an earlier driver of the same
// cluster gave to DriverHost's SaveState, or nil.
func Hosted(ctx context.Context, opt Options, host cluster.DriverHost, input, saved []byte) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var in state.DriverInput
	if err := json.Unmarshal(input, &in); err != nil {
		return fmt.Errorf("read the request: %w", err)
	}
	if saved != nil {
		if err := json.Unmarshal(saved, &in.State); err != nil {
			return fmt.Errorf("read the last driver's state: %w", err)
		}
	}
	d := &driver{opt: opt, hosting: host, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), since: time.Now()}
	if in.Environment != nil {
		d.environment = &clusterpb.Environment{}
		if err := protojson.Unmarshal(in.Environment, d.environment); err != nil {
			return fmt.Errorf("read which environment was given: %w", err)
		}
	}
	if err := d.prepare(ctx, in); err != nil {
		return err
	}
	defer d.claim.Close()
	if d.old != nil {
		if err := d.loadStart(ctx); err != nil {
			d.log.Warn("a run that the last driver's death cut off cannot go on", "err", err)
		}
	}
	if err := d.listenHosted(); err != nil {
		return errors.Join(err, d.forget())
	}
	return d.serve(ctx)
}

// hostedSaves is the least between two times that what the engine has granted is given to
// DriverHost's SaveState: each is a file on HDFS, written while nodes start containers. A driver
// that is killed meanwhile loses what came, in whose place the next one is given others.
const hostedSaves = 250 * time.Millisecond

// listenHosted opens the port for agents and clients, and the page's. Both are of every
// address: on its own node a node's name may have another than on others.
func (d *driver) listenHosted() error {
	var at [2]string
	for i, ln := range []*net.Listener{&d.agents, &d.pages} {
		var err error
		if *ln, err = net.Listen("tcp", ":0"); err != nil {
			return fmt.Errorf("listen on this node: %w", err)
		}
		_, port, err := net.SplitHostPort((*ln).Addr().String())
		if err != nil {
			return fmt.Errorf("listen on this node: %w", err)
		}
		at[i] = net.JoinHostPort(d.hosting.Host(), port)
	}
	d.address = at[0]
	d.hosting.Listening(d.address, "http://"+at[1]+"/")
	return nil
}

// keep gives the engine what the next driver has to know. What is secret is in the input.
func (d *driver) keep(s state.State) error {
	s.CertPEM, s.KeyPEM, s.Request = "", "", nil
	b, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode state: %w", err)
	}
	d.hosting.SaveState(b)
	return nil
}

// keptStart is how a run was started that is to go on where its driver dies.
type keptStart struct {
	Run   int32
	Start *clusterpb.StartRequest
}

// keepStart gives the engine the start of the active run. It may hold secrets of the person's; the
// engine keeps it where others do not read.
func (d *driver) keepStart(run int32, req *clusterpb.StartRequest) {
	start, err := proto.Marshal(req)
	if err != nil {
		d.log.Error("encode the run's start", "err", err)
		return
	}
	d.hosting.SaveStart(append(binary.LittleEndian.AppendUint32(nil, uint32(run)), start...))
}

// loadStart reads what the last driver gave to keepStart.
func (d *driver) loadStart(ctx context.Context) error {
	b, err := d.hosting.LoadStart(ctx)
	if err != nil || len(b) < 4 {
		return err
	}
	start := &clusterpb.StartRequest{}
	if err := proto.Unmarshal(b[4:], start); err != nil {
		return fmt.Errorf("read the run's start: %w", err)
	}
	d.cutOff = keptStart{Run: int32(binary.LittleEndian.Uint32(b)), Start: start}
	return nil
}

// servePage shows the cluster's page until ctx ends.
func (d *driver) servePage(ctx context.Context) error {
	page := &webui.Page{Control: d.coord.Control(), LogPage: d.hosting.LogPage, Log: d.log}
	if d.showsBoard() {
		page.Board = d.opt.ShowBoard
	}
	return page.Serve(ctx, d.pages, d.hosting.Authorize)
}

// showsBoard returns whether the page has TensorBoard beside it.
func (d *driver) showsBoard() bool {
	return d.hosting != nil && d.req.GetEngine()[onPage] != "" && d.opt.TensorBoard != nil && d.opt.ShowBoard != nil
}

// onPage is the key of a request that wants TensorBoard on the page, as magics writes it.
const onPage = "tensorboard"

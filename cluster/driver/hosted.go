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
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Hosted runs a driver inside the engine, e.g. in a managed ApplicationMaster of YARN:
// clients dial it as agents do. It serves until the cluster is released. input was passed
// to cluster.DriverLauncher's Submit by the proxy; saved is the last argument of
// DriverHost's SaveState by an earlier driver of the cluster, or nil.
func Hosted(ctx context.Context, opt Options, host cluster.DriverHost, input, saved []byte) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var in state.DriverInput
	if err := json.Unmarshal(input, &in); err != nil {
		return errtext.Fault("read the request that the ApplicationMaster got: %w", err)
	}
	if saved != nil {
		if err := json.Unmarshal(saved, &in.State); err != nil {
			return fmt.Errorf(
				"the state that the last ApplicationMaster saved cannot be read: %w; shut the cluster down and reserve again", err)
		}
	}
	d := &driver{opt: opt, hosting: host, log: slog.New(slog.NewTextHandler(os.Stderr, nil)), since: time.Now()}
	if in.Environment != nil {
		d.environment = &clusterpb.Environment{}
		if err := protojson.Unmarshal(in.Environment, d.environment); err != nil {
			return errtext.Fault("read the description of the Python environment: %w", err)
		}
	}
	if err := d.prepare(ctx, in); err != nil {
		return err
	}
	defer d.lock.Close()
	if d.old != nil {
		if err := d.loadStart(ctx); err != nil {
			d.log.Warn("the run that the last driver's death interrupted cannot be restarted", "err", err)
		}
	}
	if err := d.listenHosted(); err != nil {
		return errors.Join(err, d.forget())
	}
	return d.serve(ctx)
}

// hostedSaveInterval is the minimum time between two calls of DriverHost's SaveState while
// containers are granted: each call writes a file on HDFS. If the driver is killed before
// the next call, containers granted since are lost, and the next driver requests others.
const hostedSaveInterval = 250 * time.Millisecond

// listenHosted opens the ports for agents and clients, and for the page, on all addresses:
// the node's name may resolve to another address on the node itself than on other nodes.
func (d *driver) listenHosted() error {
	var at [2]string
	for i, ln := range []*net.Listener{&d.agents, &d.pages} {
		var err error
		if *ln, err = net.Listen("tcp", ":0"); err != nil {
			return fmt.Errorf("open a port on the ApplicationMaster's node: %w", err)
		}
		at[i] = net.JoinHostPort(d.hosting.Host(), portOf(*ln))
	}
	d.address = at[0]
	d.hosting.Listening(d.address, "http://"+at[1]+"/")
	return nil
}

// endReason returns the function that asks the engine why it ends this driver; nil if the engine does not run it, or
// does not tell.
func (d *driver) endReason() func(context.Context) string {
	if reporter, ok := d.hosting.(cluster.EndReporter); ok {
		return reporter.EndReason
	}
	return nil
}

// saveHosted saves the state for the next driver with the engine, without its secrets, which
// the input has.
func (d *driver) saveHosted(s state.State) error {
	s.CertPEM, s.KeyPEM, s.Request = "", "", nil
	b, err := json.Marshal(s)
	if err != nil {
		return errtext.Fault("encode the cluster's state: %w", err)
	}
	d.hosting.SaveState(b)
	return nil
}

// savedStart is the start of a run that the next driver restarts if this one dies.
type savedStart struct {
	Run   int32
	Start *clusterpb.StartRequest
}

// saveStart saves the active run's start with the engine. It may contain the user's secrets;
// the engine stores it where other users cannot read it.
func (d *driver) saveStart(run int32, req *clusterpb.StartRequest) {
	start, err := proto.Marshal(req)
	if err != nil {
		d.log.Error("the run cannot be restarted if this ApplicationMaster dies, because its start could not be encoded",
			"err", err)
		return
	}
	d.hosting.SaveStart(append(binary.LittleEndian.AppendUint32(nil, uint32(run)), start...))
}

// loadStart sets interrupted to what the last driver saved by saveStart.
func (d *driver) loadStart(ctx context.Context) error {
	b, err := d.hosting.LoadStart(ctx)
	if err != nil || len(b) < 4 {
		return err
	}
	start := &clusterpb.StartRequest{}
	if err := proto.Unmarshal(b[4:], start); err != nil {
		return fmt.Errorf("the run that the last ApplicationMaster saved cannot be read: %w; start it again", err)
	}
	d.interrupted = savedStart{Run: int32(binary.LittleEndian.Uint32(b)), Start: start}
	return nil
}

// servePage serves the cluster's page until ctx ends. Without its page the cluster goes on.
func (d *driver) servePage(ctx context.Context) {
	page := &webui.Page{Control: d.coord.Control(), LogPage: d.hosting.LogPage, Log: d.log}
	if d.showsBoard() {
		page.Board = d.opt.ShowBoard
	}
	if err := page.Serve(ctx, d.pages, d.hosting.Authorize); err != nil {
		d.log.Warn("the cluster's page has ended, and the cluster goes on: %tfcluster status shows the same", "err", err)
	}
}

// showsBoard returns whether the page of this hosted driver links to TensorBoard.
func (d *driver) showsBoard() bool {
	return d.hosting != nil && d.req.GetEngine()[engineTensorBoard] != "" && d.opt.TensorBoard != nil &&
		d.opt.ShowBoard != nil
}

// engineTensorBoard is the engine option, set by magics, that adds TensorBoard to the page.
const engineTensorBoard = "tensorboard"

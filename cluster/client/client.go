// Package client starts drivers and connects to them, for notebooks and shells.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/internal/errtext"
)

// Client is a connection to a cluster's driver. It is safe for concurrent use.
type Client struct {
	clusterpb.ControlClient
	clusterpb.FeedControlClient
	Name string
	conn *grpc.ClientConn
}

// Close closes the connection; the cluster is not affected.
func (c *Client) Close() error { return c.conn.Close() }

// ErrNoDriver reports that a cluster is recorded but its driver is dead.
var ErrNoDriver = errors.New("its driver has died: attach starts another")

// Dial connects to a live cluster of this user on this host. It returns ErrNoDriver if the
// driver died, and os.ErrNotExist if there is no such cluster.
func Dial(ctx context.Context, name string) (*Client, error) {
	s, err := state.Load(name)
	if err != nil {
		return nil, err
	}
	if !s.Driver.Alive() {
		return nil, fmt.Errorf("cluster %s: %w", name, ErrNoDriver)
	}
	return dialSocket(ctx, name, s.Socket)
}

// DialTimeout is the timeout of a driver's first answer.
const DialTimeout = 5 * time.Second

func dialSocket(ctx context.Context, name, socket string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket has mode 0600 and its owner is checked
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", name, err)
	}
	c := &Client{
		ControlClient: clusterpb.NewControlClient(conn), FeedControlClient: clusterpb.NewFeedControlClient(conn),
		Name: name, conn: conn,
	}
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	if _, err := c.Status(ctx, &clusterpb.StatusRequest{}); err != nil {
		_ = conn.Close() // the error of the call is returned
		return nil, fmt.Errorf("connect to cluster %s: %w", name, err)
	}
	return c, nil
}

// List returns every cluster of this user on this host, oldest first. Clusters whose driver
// died are included until reset, attach or shutdown.
func List() ([]*state.State, error) { return state.List() }

// IsHosted reports whether a cluster's driver is run by the engine; the driver process on this
// host is only its proxy.
func IsHosted(name string) bool {
	s, err := state.Load(name)
	return err == nil && s.Hosted()
}

// Kill ends the process of a cluster's driver, which does not answer, by SIGKILL. Recover starts
// another one.
func Kill(ctx context.Context, name string) error {
	s, err := state.Load(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	return s.Driver.Kill(ctx)
}

// Launch starts a driver for the request and connects to it. An empty name is replaced by the
// backend and the first free number.
func Launch(ctx context.Context, program string, req *clusterpb.ReserveRequest) (*Client, error) {
	req = proto.CloneOf(req)
	name, err := state.ClaimName(req.GetName(), req.GetBackend())
	if err != nil {
		return nil, err
	}
	req.Name = name
	return launch(ctx, program, name, req, nil)
}

// Recover starts a new driver for a cluster whose driver died; its agents reconnect.
func Recover(ctx context.Context, program, name string) (*Client, error) {
	s, err := state.Load(name)
	if err != nil {
		return nil, err
	}
	if s.Driver.Alive() {
		return Dial(ctx, name)
	}
	req, err := s.ReserveRequest()
	if err != nil {
		return nil, err
	}
	c, err := launch(ctx, program, name, req, s)
	if err != nil {
		if s, lerr := state.Load(name); lerr == nil && s.Driver.Alive() { // another process was first
			return dialSocket(ctx, name, s.Socket)
		}
	}
	return c, err
}

// driverReply is the line that a driver writes to descriptor 3.
type driverReply struct {
	Socket string `json:"socket"`
	Error  string `json:"error"`
}

// startTimeout is the timeout of a driver's start until it has a socket.
const startTimeout = 40 * time.Second // a busy HDFS may take 35 s of it

// launch starts the driver in a new session, so that neither a closed terminal nor a restarted
// kernel ends it.
func launch(ctx context.Context, program, name string, req *clusterpb.ReserveRequest,
	old *state.State,
) (*Client, error) {
	dir, err := state.Dir(name)
	if err != nil {
		return nil, err
	}
	in, err := protojson.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("a path or value is not UTF-8 (%w): work in a folder whose path is, and give such values", err)
	}
	input, err := json.Marshal(state.DriverInput{Request: in, State: old})
	if err != nil {
		return nil, errtext.Fault("encode the request: %w", err)
	}
	logPath := filepath.Join(dir, "driver.log")
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the driver's log: %w", err)
	}
	defer log.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start the driver: %w", err)
	}
	defer r.Close()
	cmd := exec.Command(program, "driver")
	cmd.Stdin = strings.NewReader(string(input))
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		_ = w.Close()
		if errors.Is(err, fs.ErrNotExist) {
			err = fmt.Errorf("%w: this program was moved or removed; install it again and restart the kernel", err)
		}
		return nil, err
	}
	_ = w.Close()                  // the driver has its own descriptor
	go func() { _ = cmd.Wait() }() // reaps the driver; clients notice its end by its socket
	reply, err := readReply(ctx, r)
	if err != nil {
		err = fmt.Errorf("start the driver: %w; the reason may be at the end of its log, %s", err, logPath)
	} else if reply.Error != "" {
		return nil, errors.New(reply.Error)
	}
	var c *Client
	if err == nil {
		c, err = dialSocket(ctx, name, reply.Socket)
	}
	if err != nil && old == nil {
		// No client would know this driver. A driver that takes over an existing cluster
		// continues, because other clients can find it.
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended already
	}
	return c, err
}

func readReply(ctx context.Context, r *os.File) (driverReply, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer stop()
	var reply driverReply
	line, err := bufio.NewReader(r).ReadBytes('\n')
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return reply, ctx.Err()
	case ctx.Err() != nil:
		return reply, fmt.Errorf("the process did not answer within %s", startTimeout)
	case errors.Is(err, io.EOF):
		return reply, errors.New("the process ended right after its start")
	case err != nil:
		return reply, err
	}
	return reply, json.Unmarshal(line, &reply)
}

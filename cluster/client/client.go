// Package client starts drivers and connects to them, for notebooks and shells.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
)

// Client speaks to a cluster's driver. Its calls may be made from any goroutine.
type Client struct {
	clusterpb.ControlClient
	Name string
	conn *grpc.ClientConn
}

// Close ends the connection; the cluster lives on.
func (c *Client) Close() error { return c.conn.Close() }

// ErrNoDriver says that a cluster is known but its driver is dead.
var ErrNoDriver = errors.New("its driver is dead")

// Dial connects to a live cluster of this user on this host. ErrNoDriver when its
// driver died; os.ErrNotExist when there is no such cluster.
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

// DialTimeout bounds how long a driver may take to answer at all.
const DialTimeout = 5 * time.Second

func dialSocket(ctx context.Context, name, socket string) (*Client, error) {
	conn, err := grpc.NewClient("passthrough:///"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()), // the socket is 0600 and its owner checked
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", addr)
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32), grpc.MaxCallSendMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to cluster %s: %w", name, err)
	}
	c := &Client{ControlClient: clusterpb.NewControlClient(conn), Name: name, conn: conn}
	ctx, cancel := context.WithTimeout(ctx, DialTimeout)
	defer cancel()
	if _, err := c.Status(ctx, &clusterpb.StatusRequest{}); err != nil {
		_ = conn.Close() // the error to tell is the call's
		return nil, fmt.Errorf("connect to cluster %s: %w", name, err)
	}
	return c, nil
}

// Info is what List tells of a cluster without asking its driver.
type Info struct {
	Name, Backend, Owner string
	Live                 bool
	Since                time.Time
	Detached             bool
	Hosted               bool // its driver is its engine's to run
	Dir                  string
	LastRun              int32
	Driver               state.Process // the driver, or what stands before a hosted one
}

// List names every cluster of this user on this host, oldest first. Those whose
// driver died are listed until reset, attach or shutdown settles them.
func List() ([]Info, error) {
	states, err := state.List()
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, s := range states {
		out = append(out, Info{
			Name: s.Name, Backend: s.Backend, Owner: s.Owner, Live: s.Driver.Alive(), Since: s.Since, Detached: s.Detached, Hosted: s.Hosted(), Dir: s.Dir, LastRun: s.LastRun, Driver: s.Driver,
		})
	}
	return out, nil
}

// IsHosted is whether a cluster's driver is its engine's to run: the process here only
// stands before it.
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

// Launch starts a driver for the request and connects to it. An empty name is
// filled with the backend and the first free number.
func Launch(ctx context.Context, program string, req *clusterpb.ReserveRequest) (*Client, error) {
	req = proto.CloneOf(req)
	name, err := state.ClaimName(req.GetName(), req.GetBackend())
	if err != nil {
		return nil, err
	}
	req.Name = name
	return launch(ctx, program, name, req, nil)
}

// Recover starts a new driver for a cluster whose driver died; its agents join again.
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
		if s, lerr := state.Load(name); lerr == nil && s.Driver.Alive() { // somebody else was first
			return dialSocket(ctx, name, s.Socket)
		}
	}
	return c, err
}

// driverWord is what a driver writes, once, on descriptor 3.
type driverWord struct {
	Socket string `json:"socket"`
	Error  string `json:"error"`
}

// startTimeout bounds a driver's start up to its socket.
const startTimeout = 20 * time.Second

// launch starts the driver detached from the caller: in its own session, so that
// neither a closed terminal nor a restarted kernel reaches it.
func launch(ctx context.Context, program, name string, req *clusterpb.ReserveRequest, old *state.State) (*Client, error) {
	dir, err := state.Dir(name)
	if err != nil {
		return nil, err
	}
	in, err := protojson.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
	}
	input, err := json.Marshal(state.DriverInput{Request: in, State: old})
	if err != nil {
		return nil, fmt.Errorf("encode the request: %w", err)
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
		return nil, fmt.Errorf("start the driver: %w", err)
	}
	_ = w.Close()                  // the driver holds its own
	go func() { _ = cmd.Wait() }() // reaped whenever it ends; its exit is told by its socket
	word, err := readWord(ctx, r)
	if err != nil {
		err = fmt.Errorf("start the driver: %w; its log: %s", err, logPath)
	} else if word.Error != "" {
		return nil, errors.New(word.Error)
	}
	var c *Client
	if err == nil {
		c, err = dialSocket(ctx, name, word.Socket)
	}
	if err != nil && old == nil {
		// Nobody would know of it. One that takes a cluster over goes on: the cluster is
		// there, and others may find it.
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	}
	return c, err
}

func readWord(ctx context.Context, r *os.File) (driverWord, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer stop()
	var word driverWord
	line, err := bufio.NewReader(r).ReadBytes('\n')
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return word, ctx.Err()
	case ctx.Err() != nil:
		return word, fmt.Errorf("no word from it within %s", startTimeout)
	case errors.Is(err, io.EOF):
		return word, errors.New("it ended at once")
	case err != nil:
		return word, err
	}
	return word, json.Unmarshal(line, &word)
}

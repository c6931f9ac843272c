package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"

	"github.com/tfcluster/tfcluster/cluster/agent"
	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/driver/hdfsdir"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
	"github.com/tfcluster/tfcluster/cluster/state"
	"github.com/tfcluster/tfcluster/cluster/yarn"
	"github.com/tfcluster/tfcluster/tensorboard"
	"github.com/tfcluster/tfcluster/tensorboard/events"
)

// runMaster is `tfcluster appmaster`: the driver as a managed ApplicationMaster of YARN. All its input is
// in its container, and all its files are below the container's folder.
func runMaster(ctx context.Context, _ []string) error {
	dir, err := os.Getwd()
	if err == nil {
		err = os.Setenv("TFCLUSTER_HOME", filepath.Join(dir, "home"))
	}
	if err != nil {
		return fmt.Errorf("the folder of the ApplicationMaster's container cannot be used: %w; see the disks of its node, "+
			"and reserve again", err)
	}
	attempt, err := yarn.OpenAttempt(ctx, dir, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	input, state := attempt.Input()
	err = driver.Hosted(ctx, driver.Options{
		Version: version, Program: filepath.Join(dir, "tfcluster"),
		Engines:    engines(attempt),
		OpenRemote: hdfsdir.Open,
		Hadoop:     hdfsdir.Configuration,
		Events:     coordinator.EventFiles{Read: readEvents, Write: writeEvents},
		// Its page is shown to others, too.
		TensorBoard: func(python, stateDir, _, name string, _ http.Handler) coordinator.TensorBoards {
			// The path of the container's folder is too long for a socket; this names the same folder.
			return newTensorBoard(python, stateDir, filepath.Join("/proc", strconv.Itoa(os.Getpid()), "cwd"), name, nil)
		},
		ShowBoard: func(path string, at *clusterpb.TensorBoardReply) http.Handler {
			return tensorboard.GetOnly(path, tensorboard.Address{Path: at.GetPath(), Socket: at.GetSocket()})
		},
	}, attempt, input, state)
	return errors.Join(err, attempt.Close())
}

// runDriver is `tfcluster driver`. client.Launch starts it, writes its input and reads its one message.
func runDriver(ctx context.Context, _ []string) error {
	program, err := ownPath()
	if err != nil {
		return err
	}
	return driver.Main(ctx, driver.Options{
		Version: version, Program: program,
		Engines:     engines(nil),
		TensorBoard: newTensorBoard,
		OpenRemote:  hdfsdir.Open,
		Hadoop:      hdfsdir.Configuration,
		Events:      coordinator.EventFiles{Read: readEvents, Write: writeEvents},
	}, os.Stdin, os.NewFile(3, "word"))
}

// agentGC lets an agent's heap of a few MB grow to eight before a collection: with Go's minimum of four, a
// collection would run during each executor's start.
const agentGC = 200

// runAgent is `tfcluster agent`. It reads its configuration from standard input or, in a YARN container,
// from the container's credentials.
func runAgent(ctx context.Context, args []string) error {
	debug.SetGCPercent(agentGC)
	config, err := agentConfig(args)
	if errors.Is(err, clusterpb.ErrAgentConfig) {
		err = fmt.Errorf("%w; if the cluster was reserved by another version of tfcluster than this program, %s, "+
			"shut it down and reserve it again", err, version)
	}
	if err != nil {
		return err
	}
	return agent.Main(ctx, config, version)
}

// tensorBoard adapts a cluster's TensorBoard to the coordinator.
type tensorBoard struct{ *tensorboard.Board }

func newTensorBoard(python, stateDir, socketDir, name string, lines http.Handler) coordinator.TensorBoards {
	return tensorBoard{tensorboard.New(name, python, socketDir, filepath.Join(stateDir, "tensorboard.log"), lines)}
}

// Open implements coordinator.TensorBoards.
func (b tensorBoard) Open(ctx context.Context, logdir string) (*clusterpb.TensorBoardReply, error) {
	a, err := b.Board.Open(ctx, logdir)
	if err != nil {
		return nil, err
	}
	return &clusterpb.TensorBoardReply{Id: a.ID, Path: a.Path, Logdir: a.Logdir, Socket: a.Socket}, nil
}

// LinesAddress implements coordinator.TensorBoards.
func (b tensorBoard) LinesAddress(context.Context) (*clusterpb.LinesAddressReply, error) {
	a, err := b.Lines()
	if err != nil {
		return nil, err
	}
	return &clusterpb.LinesAddressReply{Path: a.Path, Socket: a.Socket}, nil
}

// Stop implements coordinator.TensorBoards.
func (b tensorBoard) Stop(context.Context) error { return b.Board.Stop() }

// readEvents reads the scalars of a run's event files for its progress.
func readEvents(dir string) func() ([]coordinator.Scalar, error) {
	d := events.NewDir(dir, rundir.OwnEvents)
	return func() ([]coordinator.Scalar, error) {
		found, err := d.Next()
		scalars := make([]coordinator.Scalar, 0, len(found))
		for _, f := range found {
			scalars = append(scalars,
				coordinator.Scalar{Tag: f.Tag, Step: f.Step, Value: f.Value, WallTime: f.WallTime, File: f.File})
		}
		return scalars, err
	}
}

// eventFile is an event file that the driver writes.
type eventFile struct{ *events.Writer }

func writeEvents(dir string) coordinator.EventFile {
	return eventFile{events.NewWriter(dir, rundir.OwnEvents)}
}

// Append implements coordinator.EventFile.
func (f eventFile) Append(scalars []coordinator.Scalar) error {
	list := make([]events.Scalar, len(scalars))
	for i, s := range scalars {
		list[i] = events.Scalar{Tag: s.Tag, Step: s.Step, Value: s.Value, WallTime: s.WallTime}
	}
	return f.Writer.Append(list)
}

// runBroker is `tfcluster broker --socket PATH`, started by jupyter-server-proxy.
func runBroker(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("broker", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	socket := flags.String("socket", "", "socket on which jupyter-server-proxy connects")
	if err := flags.Parse(args); err != nil || *socket == "" {
		return fmt.Errorf(
			"--socket PATH is missing: only jupyter-server-proxy starts this command; tfcluster install registers it there")
	}
	dir, err := state.RuntimeDir()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return tensorboard.Broker(ctx, *socket, dir)
}

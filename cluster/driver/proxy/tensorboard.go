package proxy

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/driver/coordinator"
	"github.com/tfcluster/tfcluster/cluster/results/rundir"
)

// localBoard is a proxy's TensorBoard, which runs on this host and shows a copy of the
// directory on HDFS.
type localBoard struct {
	process coordinator.TensorBoards // nil: there is none

	mu     sync.Mutex
	folder string             // guarded by mu: with the copy; "" before the first
	stop   context.CancelFunc // guarded by mu
	work   sync.WaitGroup
}

// firstCopy bounds how long opening TensorBoard waits for the first copy.
const firstCopy = 20 * time.Second

// openBoard opens or stops TensorBoard, as requested.
func (p *Proxy) openBoard(ctx context.Context, asked *clusterpb.TensorBoardRequest) *clusterpb.TensorBoardReply {
	switch {
	case p.board.process == nil:
		return &clusterpb.TensorBoardReply{Error: "this process serves no TensorBoard"}
	case asked.GetStop():
		if err := p.board.process.Stop(ctx); err != nil {
			return &clusterpb.TensorBoardReply{Error: err.Error()}
		}
		return &clusterpb.TensorBoardReply{}
	}
	logdir := asked.GetLogdir()
	if logdir == "" {
		logdir = p.cfg.Dir
		if asked.GetRun() > 0 {
			logdir = strings.TrimRight(rundir.Dir(p.cfg.Dir, asked.GetRun()), "/") + "/logs"
		}
	}
	reply, err := p.openLogs(ctx, logdir)
	if err != nil {
		return &clusterpb.TensorBoardReply{Logdir: logdir, Error: err.Error()}
	}
	reply.Logdir = logdir
	return reply
}

// openLogs opens TensorBoard with a folder, or with the copy of one below the cluster's directory.
func (p *Proxy) openLogs(ctx context.Context, logdir string) (*clusterpb.TensorBoardReply, error) {
	rest, below := rundir.Below(logdir, p.cfg.Dir)
	if !below {
		return p.board.process.Open(ctx, logdir)
	}
	if err := p.copyLogs(ctx); err != nil {
		return nil, err
	}
	return p.board.process.Open(ctx, filepath.Join(p.board.folder, filepath.FromSlash(rest)))
}

// copyLogs starts copying the event files to this host, once, and waits for the first round.
func (p *Proxy) copyLogs(ctx context.Context) error {
	p.board.mu.Lock()
	defer p.board.mu.Unlock()
	if p.board.folder != "" {
		return nil
	}
	remote, closer, err := p.cfg.Remote()
	if err != nil {
		return err
	}
	folder := filepath.Join(p.cfg.StateDir, "logs")
	follow := &logCopier{remote: remote, dir: p.cfg.Dir, folder: folder}
	following, stop := context.WithCancel(context.Background())
	first := make(chan error, 1)
	p.board.work.Go(func() {
		defer closer.Close()
		follow.run(following, func(err error) { first <- err })
	})
	select {
	case err = <-first:
	case <-time.After(firstCopy): // the rest follows
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		stop()
		return err
	}
	p.board.folder, p.board.stop = folder, stop
	return nil
}

// close ends TensorBoard and stops copying.
func (b *localBoard) close(ctx context.Context) error {
	var err error
	if b.process != nil {
		err = b.process.Close(ctx)
	}
	b.mu.Lock()
	if b.stop != nil {
		b.stop()
	}
	b.mu.Unlock()
	b.work.Wait()
	return err
}

// tensorBoard answers the call TensorBoard, which is not forwarded.
func (p *Proxy) tensorBoard(s grpc.ServerStream) error {
	var asked clusterpb.TensorBoardRequest
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	return s.SendMsg(p.openBoard(s.Context(), &asked))
}

// linesAddress answers the call LinesAddress, which is not forwarded: browsers are on this host.
func (p *Proxy) linesAddress(s grpc.ServerStream) error {
	if err := s.RecvMsg(&clusterpb.LinesAddressRequest{}); err != nil {
		return err
	}
	if p.board.process == nil {
		return status.Error(codes.Unimplemented, "this process serves no lines by HTTP")
	}
	reply, err := p.board.process.LinesAddress(s.Context())
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return s.SendMsg(reply)
}

// Control returns the driver's Control service, and waits while no driver answers.
func (p *Proxy) Control(ctx context.Context) (clusterpb.ControlClient, error) {
	conn, err := p.waitForDriver(ctx)
	if err != nil {
		return nil, err
	}
	return clusterpb.NewControlClient(conn), nil
}

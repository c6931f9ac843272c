package driver

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/cluster/coordinator"
	"github.com/tfcluster/tfcluster/cluster/rundir"
)

// boards is the TensorBoard of a front: it runs on this host, and shows a copy of what
// the driver carries elsewhere.
type boards struct {
	board coordinator.TensorBoards // nil: there is none

	mu     sync.Mutex
	folder string             // guarded by mu: of the copy, "" before there is one
	stop   context.CancelFunc // guarded by mu
	work   sync.WaitGroup
}

// firstCopy is how long who asks for TensorBoard waits for the copy.
const firstCopy = 20 * time.Second

// answer does what is asked for.
func (f *front) answer(ctx context.Context, asked *clusterpb.TensorBoardRequest) *clusterpb.TensorBoardReply {
	reply := &clusterpb.TensorBoardReply{}
	var err error
	switch {
	case f.boards.board == nil:
		reply.Error = "this process serves no TensorBoard"
		return reply
	case asked.GetStop():
		err = f.boards.board.Close(ctx)
	default:
		logdir := asked.GetLogdir()
		if logdir == "" {
			logdir = f.dir
			if asked.GetRun() > 0 {
				logdir = strings.TrimRight(rundir.Dir(f.dir, asked.GetRun()), "/") + "/logs"
			}
		}
		here := logdir
		if rest, below := rundir.Below(logdir, f.dir); below {
			if err = f.copyLogs(ctx); err == nil {
				here = filepath.Join(f.boards.folder, filepath.FromSlash(rest))
			}
		}
		if err == nil {
			if reply, err = f.boards.board.Open(ctx, here); err == nil {
				reply.Logdir = logdir
				return reply
			}
		}
		reply = &clusterpb.TensorBoardReply{Logdir: logdir}
	}
	if err != nil {
		reply.Error = err.Error()
	}
	return reply
}

// copyLogs begins to copy the event files here, once, and waits for those that there are.
func (f *front) copyLogs(ctx context.Context) error {
	f.boards.mu.Lock()
	defer f.boards.mu.Unlock()
	if f.boards.folder != "" {
		return nil
	}
	e, err := f.opt.Elsewhere(f.dir)
	if err != nil {
		return err
	}
	folder := filepath.Join(f.stateDir, "logs")
	follow := &follower{remote: e.Ask, dir: f.dir, folder: folder}
	following, stop := context.WithCancel(context.Background())
	first := make(chan error, 1)
	f.boards.work.Go(func() {
		defer e.Close.Close()
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
	f.boards.folder, f.boards.stop = folder, stop
	return nil
}

// close ends TensorBoard and the copying.
func (b *boards) close(ctx context.Context) error {
	var err error
	if b.board != nil {
		err = b.board.Close(ctx)
	}
	b.mu.Lock()
	if b.stop != nil {
		b.stop()
	}
	b.mu.Unlock()
	b.work.Wait()
	return err
}

// tensorBoard answers for TensorBoard.
func (f *front) tensorBoard(s grpc.ServerStream) error {
	var asked clusterpb.TensorBoardRequest
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	return s.SendMsg(f.answer(s.Context(), &asked))
}

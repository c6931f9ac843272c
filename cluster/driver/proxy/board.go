package proxy

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

// boards is the TensorBoard of a proxy: it runs on this host, and shows a copy of what
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
func (p *Proxy) answer(ctx context.Context, asked *clusterpb.TensorBoardRequest) *clusterpb.TensorBoardReply {
	reply := &clusterpb.TensorBoardReply{}
	var err error
	switch {
	case p.boards.board == nil:
		reply.Error = "this process serves no TensorBoard"
		return reply
	case asked.GetStop():
		err = p.boards.board.Close(ctx)
	default:
		logdir := asked.GetLogdir()
		if logdir == "" {
			logdir = p.cfg.Dir
			if asked.GetRun() > 0 {
				logdir = strings.TrimRight(rundir.Dir(p.cfg.Dir, asked.GetRun()), "/") + "/logs"
			}
		}
		here := logdir
		if rest, below := rundir.Below(logdir, p.cfg.Dir); below {
			if err = p.copyLogs(ctx); err == nil {
				here = filepath.Join(p.boards.folder, filepath.FromSlash(rest))
			}
		}
		if err == nil {
			if reply, err = p.boards.board.Open(ctx, here); err == nil {
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
func (p *Proxy) copyLogs(ctx context.Context) error {
	p.boards.mu.Lock()
	defer p.boards.mu.Unlock()
	if p.boards.folder != "" {
		return nil
	}
	remote, closer, err := p.cfg.Remote()
	if err != nil {
		return err
	}
	folder := filepath.Join(p.cfg.StateDir, "logs")
	follow := &follower{remote: remote, dir: p.cfg.Dir, folder: folder}
	following, stop := context.WithCancel(context.Background())
	first := make(chan error, 1)
	p.boards.work.Go(func() {
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
	p.boards.folder, p.boards.stop = folder, stop
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
func (p *Proxy) tensorBoard(s grpc.ServerStream) error {
	var asked clusterpb.TensorBoardRequest
	if err := s.RecvMsg(&asked); err != nil {
		return err
	}
	return s.SendMsg(p.answer(s.Context(), &asked))
}

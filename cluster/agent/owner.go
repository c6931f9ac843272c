package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/lockfile"
)

// leavingWait is how long an agent that leaves waits until its last message is sent.
const leavingWait = 100 * time.Millisecond

// watchOwners ends the agent when one of its owner processes ends, and reports that as the
// cause.
func (a *Agent) watchOwners(ctx context.Context) {
	for _, o := range a.cfg.GetOwners() {
		a.work.Go(func() {
			if err := untilGone(ctx, int(o.GetPid())); err != nil {
				return
			}
			cause := o.GetWhat() + " ended"
			a.log.Error("the agent ends", "cause", cause)
			a.link.send(
				&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Leaving{Leaving: &clusterpb.Leaving{Cause: cause}}})
			time.Sleep(leavingWait)
			a.cancel(errors.New(cause))
		})
	}
}

// untilGone returns nil when the process has ended. It waits on a pidfd, which is safe against
// reuse of the pid; on kernels before Linux 5.3 it polls.
func untilGone(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil
	case err != nil:
		return pollEnd(ctx, pid)
	}
	defer unix.Close(fd)
	for ctx.Err() == nil {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(fds, 200)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return pollEnd(ctx, pid)
		}
		if n > 0 {
			return nil
		}
	}
	return ctx.Err()
}

func pollEnd(ctx context.Context, pid int) error {
	for unix.Kill(pid, 0) == nil {
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// keepFolder locks the agent's own folder: whoever finds it unlocked knows that the agent was
// killed. release removes the folder.
func keepFolder(dir string) (release func(), err error) {
	f, err := os.CreateTemp(dir, "alive-") // renamed once it is locked, so that no other agent finds it unlocked
	if err == nil {
		err = lockfile.Try(f, lockfile.Exclusive)
	}
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, "alive"))
	}
	if err != nil {
		if f != nil {
			f.Close()
		}
		return nil, fmt.Errorf("lock the folder for this executor's sockets: %w", err)
	}
	return func() {
		os.RemoveAll(dir)
		f.Close()
	}, nil
}

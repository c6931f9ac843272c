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
	"github.com/tfcluster/tfcluster/cluster/lockfile"
)

// lastWord is how long an agent that leaves waits until its word is on the way.
const lastWord = 100 * time.Millisecond

// watchOwners ends the agent with the first of its owners, telling the coordinator
// why. It returns when ctx ends.
func (a *Agent) watchOwners(ctx context.Context) {
	for _, o := range a.cfg.GetOwners() {
		a.work.Go(func() {
			if err := untilGone(ctx, int(o.GetPid())); err != nil {
				return // ctx ended
			}
			cause := o.GetWhat() + " ended"
			a.log.Error("leaving", "cause", cause)
			a.link.send(&clusterpb.AgentMessage{Message: &clusterpb.AgentMessage_Leaving{Leaving: &clusterpb.Leaving{Cause: cause}}})
			time.Sleep(lastWord)
			a.cancel(errors.New(cause))
		})
	}
}

// untilGone returns nil when the process is gone. It waits on a pidfd, so that a pid
// that is used again is never taken for it; a kernel before Linux 5.3 is polled.
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

// keepFolder takes the agent's folder for its own: whoever comes later and finds the
// lock free knows that the agent was killed. The folder goes when release is called.
func keepFolder(dir string) (release func(), err error) {
	f, err := os.CreateTemp(dir, "alive-") // found only once it is locked: the agents of a host start together
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
		return nil, fmt.Errorf("lock the agent's folder: %w", err)
	}
	return func() {
		os.RemoveAll(dir)
		f.Close()
	}, nil
}

// Package interpreter keeps an executor's Python warm: a zygote that has imported what tasks
// import, from which they are forked. Agents of one host share zygotes.
package interpreter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
	"github.com/tfcluster/tfcluster/internal/excerpt"
)

// rewarmPause is the pause before a zygote that died is started again.
const rewarmPause = time.Second

// Interpreter keeps the executor's Python warm. Fetch must be set before Warm; the other
// methods may be called from any goroutine.
type Interpreter struct {
	Starter Starter
	log     *slog.Logger
	warmed  func(*clusterpb.Python) // called each time Python is ready or has failed
	// Fetch makes a wanted environment available on this host until the Closer is closed.
	Fetch func(context.Context, *clusterpb.WarmUp) (*clusterpb.WarmUp, io.Closer, error)

	keeper sync.WaitGroup

	mu sync.Mutex
	// guarded by mu
	want   *clusterpb.WarmUp
	stop   context.CancelFunc // ends the keeper of want
	zygote *zygote            // nil while none is ready
	old    *zygote            // withdrawn and not yet replaced
	python *clusterpb.Python  // nil while Python warms up
	change chan struct{}      // closed when zygote or python changes
}

// New returns an interpreter that calls warmed each time Python is ready or has failed.
func New(starter Starter, log *slog.Logger, warmed func(*clusterpb.Python)) *Interpreter {
	return &Interpreter{Starter: starter, log: log, warmed: warmed, change: make(chan struct{})}
}

// Warm starts warming the wanted Python, unless it is warm or on its way. It returns at once.
func (i *Interpreter) Warm(ctx context.Context, want *clusterpb.WarmUp) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && proto.Equal(i.want, want) {
		return
	}
	i.restart(ctx, want)
}

// PackagePath returns the folder of the package tfcluster, and whether a forker is kept instead
// of a zygote: tasks of a forker need the folder in PYTHONPATH.
func (i *Interpreter) PackagePath() (path string, plain bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.Starter.packageDir(), i.want.GetPlain()
}

// Withdraw gives the zygote no more tasks; its tasks go on. Renew must follow.
func (i *Interpreter) Withdraw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.zygote != nil {
		i.old = i.zygote
		i.set(nil, nil)
	}
}

// Renew replaces the zygote that was withdrawn. Its remaining tasks end.
func (i *Interpreter) Renew(ctx context.Context) {
	i.mu.Lock()
	old := i.old
	i.old = nil
	i.mu.Unlock()
	if old == nil {
		return
	}
	old.retire(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && i.zygote == nil {
		i.restart(ctx, i.want)
	}
}

// Retry starts the keeper again if it gave up: the reason may be gone.
func (i *Interpreter) Retry(ctx context.Context) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.stop != nil && i.zygote == nil && i.python != nil {
		i.restart(ctx, i.want)
	}
}

// restart replaces the keeper. Caller holds mu.
func (i *Interpreter) restart(ctx context.Context, want *clusterpb.WarmUp) {
	if i.stop != nil {
		i.stop()
	}
	ctx, i.stop = context.WithCancel(ctx)
	i.want = want
	i.set(nil, nil)
	i.keeper.Go(func() { i.keep(ctx, want) })
}

// Close closes the zygote's connection and waits for the keeper.
func (i *Interpreter) Close() {
	i.mu.Lock()
	if i.stop != nil {
		i.stop()
	}
	i.mu.Unlock()
	i.keeper.Wait()
}

// set is called with mu held.
func (i *Interpreter) set(z *zygote, p *clusterpb.Python) {
	i.zygote, i.python = z, p
	close(i.change)
	i.change = make(chan struct{})
}

// keep keeps a connection to a zygote until ctx ends, and starts another when one dies.
func (i *Interpreter) keep(ctx context.Context, want *clusterpb.WarmUp) {
	wanted := want
	want, held, err := i.Fetch(ctx, wanted)
	if err != nil {
		if ctx.Err() == nil {
			i.publish(ctx, nil, &clusterpb.Python{Executable: wanted.GetPython(), Error: err.Error()})
		}
		return
	}
	defer held.Close()
	for {
		z, python := i.open(ctx, want)
		if ctx.Err() != nil {
			if z != nil {
				z.Close()
			}
			return
		}
		i.publish(ctx, z, python)
		if z == nil {
			return // it cannot be started: warmed has reported why
		}
		select {
		case <-ctx.Done():
			z.Close()
			return
		case <-z.Gone:
			z.Close()
			killOrphans(z.pid, z.mark)
		}
		i.log.Warn("the zygote died; another is started", "executor", i.Starter.Dir)
		i.mu.Lock()
		if ctx.Err() == nil {
			i.set(nil, nil)
		}
		i.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(rewarmPause):
		}
	}
}

// publish sets the zygote and its description, unless ctx has ended, and reports the description.
func (i *Interpreter) publish(ctx context.Context, z *zygote, p *clusterpb.Python) {
	i.mu.Lock()
	if ctx.Err() == nil {
		i.set(z, p)
	}
	i.mu.Unlock()
	i.warmed(p)
}

// open connects to a zygote and waits for its imports. The description has the error if there
// is no zygote.
func (i *Interpreter) open(ctx context.Context, want *clusterpb.WarmUp) (*zygote, *clusterpb.Python) {
	failed := func(err error) (*zygote, *clusterpb.Python) {
		return nil, &clusterpb.Python{Executable: want.GetPython(), Error: err.Error()}
	}
	for {
		z, started, err := i.Starter.connect(ctx, want)
		if err != nil {
			return failed(err)
		}
		python, err := z.WaitReady(ctx)
		if err == nil {
			return z, python
		}
		z.Close()
		if started || ctx.Err() != nil {
			return failed(fmt.Errorf("%s ended while it imported TensorFlow: %s (run it with -c 'import tensorflow' on "+
				"that host)", want.GetPython(), excerpt.LastLine(i.Starter.base(want)+".log")))
		}
		// It was ending already: the next iteration starts another.
	}
}

// Current returns the zygote and its WarmUp, and waits while it warms up. One that has died is not returned: its keeper
// is about to drop it, and starts another.
func (i *Interpreter) Current(ctx context.Context) (*zygote, *clusterpb.WarmUp, error) {
	for {
		i.mu.Lock()
		z, python, change, want := i.zygote, i.python, i.change, i.want
		i.mu.Unlock()
		switch {
		case z != nil && !z.isGone():
			return z, want, nil
		case z == nil && python != nil:
			return nil, nil, errors.New(python.GetError())
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-change:
		}
	}
}

// Environment returns the environment of this agent's tasks: that of the zygote if this agent
// had started it.
func (i *Interpreter) Environment(want *clusterpb.WarmUp) map[string]string {
	env := map[string]string{}
	for _, entry := range zygoteEnv(os.Environ(), want.GetEnv(), i.Starter.searchPath(want)) {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value // the last one counts, as for exec.Cmd
	}
	return env
}

// Imported returns the values of the importTime variables that a zygote's imports saw.
func (i *Interpreter) Imported(want *clusterpb.WarmUp) map[string]string {
	env := importEnv(want)
	if _, set := env["TF_CPP_MIN_LOG_LEVEL"]; !set {
		env["TF_CPP_MIN_LOG_LEVEL"] = "1"
	}
	if ours := i.Starter.searchPath(want); ours != "" {
		env[pythonPath] = prependPath(ours, env[pythonPath])
	}
	return env
}

// Describe returns the current Python; nil while it warms up.
func (i *Interpreter) Describe() *clusterpb.Python {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.python
}
